// SPDX-License-Identifier: Apache-2.0
#include "planner/plan_json.h"

#include <google/protobuf/text_format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "planner/text_input.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

std::string ToLine(const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  printer.PrintToString(message, &text);
  return std::string(StripWhitespace(text));
}

void AddIfKnown(const char* key, const std::string& text, Json* out) {
  if (!text.empty()) (*out)[key] = text;
}

std::string GetText(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

Status ParseMessage(const std::string& text, std::string_view what,
                    google::protobuf::Message* message) {
  std::string error;
  if (ParseTextMessage(text, message, &error)) return OkStatus();
  return errors::InvalidArgument("the plan has ", what, " that cannot be read: ", error);
}

Status ParseNode(const Json& entry, GraphSource* plan) {
  pb::NodeDef* const node = plan->graph.add_node();
  node->set_name(GetText(entry, "node"));
  node->set_op(GetText(entry, "op"));
  node->set_device(GetText(entry, "device"));
  if (node->name().empty() || node->op().empty()) {
    return errors::InvalidArgument("the plan has a node without a name or an op");
  }
  if (!entry.contains("inputs") || !entry["inputs"].is_array()) {
    return errors::InvalidArgument("the plan does not tell the inputs of ", node->name());
  }
  for (const Json& input : entry["inputs"]) {
    if (input.is_string()) node->add_input(input.get<std::string>());
  }
  if (entry.contains("attrs") && entry["attrs"].is_object()) {
    for (const auto& attr : entry["attrs"].items()) {
      if (!attr.value().is_string()) continue;
      MR_RETURN_IF_ERROR(ParseMessage(attr.value().get<std::string>(),
                                      StrCat("an attribute ", attr.key(), " of ", node->name()),
                                      &(*node->mutable_attr())[attr.key()]));
    }
  }
  Explanation known;
  const auto rule = entry.find("rule");
  if (rule != entry.end() && rule->is_number_integer()) known.rule = rule->get<int>();
  known.why = GetText(entry, "why");
  known.requested = GetText(entry, "requested");
  known.origin = GetText(entry, "origin");
  known.chain = GetText(entry, "chain");
  if (known.rule != 0) plan->explanations[node->name()] = std::move(known);
  return OkStatus();
}

}  // namespace

std::string PlanToJson(const pb::GraphDef& graph, const StringMap<Explanation>& explanations,
                       bool with_chains) {
  Json plan = {{"format", kPlanFormat}};
  plan["versions"] = ToLine(graph.versions());
  if (graph.has_library()) plan["library"] = ToLine(graph.library());
  Json& nodes = plan["nodes"] = Json::array();
  for (const pb::NodeDef& node : graph.node()) {
    Json entry = {{"node", node.name()}, {"op", node.op()}, {"device", node.device()}};
    if (const auto found = explanations.find(node.name()); found != explanations.end()) {
      const Explanation& known = found->second;
      entry["rule"] = known.rule;
      entry["why"] = known.why;
      AddIfKnown("requested", known.requested, &entry);
      AddIfKnown("origin", known.origin, &entry);
      if (with_chains) AddIfKnown("chain", known.chain, &entry);
    }
    entry["inputs"] = node.input();
    Json& attrs = entry["attrs"] = Json::object();
    const std::map<std::string, pb::AttrValue> sorted(node.attr().begin(), node.attr().end());
    for (const auto& [name, value] : sorted) attrs[name] = ToLine(value);
    nodes.push_back(std::move(entry));
  }
  return plan.dump(1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

bool LooksLikePlanJson(std::string_view text) {
  const std::string_view start = StripWhitespace(text.substr(0, 4096));
  return start.starts_with("{") && start.find("\"millrace plan") != std::string_view::npos;
}

StatusOr<GraphSource> ParsePlanJson(std::string_view text) {
  const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object() || GetText(root, "format") != kPlanFormat || !root.contains("nodes") ||
      !root["nodes"].is_array()) {
    return errors::InvalidArgument("this is not a \"", kPlanFormat, "\"");
  }
  GraphSource plan;
  MR_RETURN_IF_ERROR(
      ParseMessage(GetText(root, "versions"), "versions", plan.graph.mutable_versions()));
  if (root.contains("library")) {
    MR_RETURN_IF_ERROR(
        ParseMessage(GetText(root, "library"), "functions", plan.graph.mutable_library()));
  }
  for (const Json& entry : root["nodes"]) {
    if (!entry.is_object()) return errors::InvalidArgument("the plan has a node that is no object");
    MR_RETURN_IF_ERROR(ParseNode(entry, &plan));
  }
  return plan;
}

}  // namespace millrace
