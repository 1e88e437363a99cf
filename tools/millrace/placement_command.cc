// SPDX-License-Identifier: Apache-2.0
// `millrace place` and `why`.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/errors.h"
#include "base/strings.h"
#include "graph/graph_def_io.h"
#include "planner/explanations.h"
#include "planner/plan_json.h"
#include "tools/millrace/graph_commands.h"
#include "tools/millrace/offline.h"

namespace millrace {
namespace {

struct Flags : ClusterFlags {
  std::string graph, node, write;
  bool full = false, as_json = false;
};

int RunPlace(const Flags& flags) {
  int code = kDone;
  const StatusOr<PlacedGraph> placed = LoadPlaced(flags.graph, flags, flags.full, &code);
  if (!placed.ok()) return Complain("place", placed.status(), code);
  pb::GraphDef def;
  const Status exported = ExportGraphDef(*placed->graph, {}, &def);
  if (!exported.ok()) return Complain("place", exported, kWrongInput);
  if (!flags.write.empty()) {
    code = Write("place", flags.write, def.SerializeAsString());
    if (code != kDone) return code;
  }
  if (flags.as_json) return Write("place", "", PlanToJson(def, placed->explanations, flags.full));
  std::string text = placed->summary + "\n";
  for (const Node* node : placed->graph->OpNodes()) {
    const Explanation& known = placed->explanations.find(node->name())->second;
    if (flags.full && !known.chain.empty()) {
      text += known.chain;
      continue;
    }
    StrAppend(&text, node->assigned_device(), "  ", node->name(), " (", node->type(), "): rule ",
              known.rule, "\n");
  }
  return Write("place", "", text);
}

// All that is known, with the story of its group.
std::string Story(const PlacedGraph& placed, const Node& node, const Explanation& known) {
  if (placed.log) return placed.log->ToText(node.name());
  if (known.chain.empty()) {
    return StrCat(node.name(), " (", node.type(), ") -> ", node.assigned_device(), "\n  rule ",
                  known.rule, ": ", known.why, "\n");
  }
  const auto group = placed.explanations.find(GroupOf(known.chain));
  return group == placed.explanations.end() ? known.chain
                                            : StrCat(known.chain, group->second.chain);
}

int RunWhy(const Flags& flags) {
  int code = kDone;
  StatusOr<GraphSource> source = ReadGraphSource(flags.graph, flags.tags);
  if (!source.ok()) return Complain("why", source.status(), kWrongInput);
  bool is_there = false;
  for (const pb::NodeDef& node : source->graph.node()) is_there |= node.name() == flags.node;
  if (!is_there) {
    return Complain("why", errors::NotFound("the graph has no node '", flags.node, "'"),
                    kWrongInput);
  }
  const StatusOr<PlacedGraph> placed =
      LoadPlaced(*std::move(source), flags, /*chains=*/false, &code);
  if (!placed.ok()) return Complain("why", placed.status(), code);
  const Node& node = *placed->graph->FindNode(flags.node);
  const Explanation& known = placed->explanations.find(flags.node)->second;
  const std::string story = Story(*placed, node, known);
  if (!flags.as_json) return Write("why", "", story);
  nlohmann::json entry = {
      {"node", node.name()}, {"op", node.type()}, {"device", node.assigned_device()},
      {"rule", known.rule},  {"why", known.why},  {"text", story}};
  if (!known.requested.empty()) entry["requested"] = known.requested;
  if (!known.origin.empty()) entry["origin"] = known.origin;
  return Write("why", "",
               entry.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace

void AddPlaceCommand(CLI::App* app, std::function<int()>* chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const command = AddCommand(
      app, "place", "say on which device every node of a graph goes",
      [flags] { return RunPlace(*flags); }, chosen);
  AddGraphArgument(command, "graph", &flags->graph);
  AddClusterFlags(command, flags.get());
  command->add_flag("--full", flags->full, "explain every node");
  command->add_flag("--json", flags->as_json, "for programs, and for `millrace diff`");
  command->add_option("--write", flags->write, "file for the graph with its devices");
}

void AddWhyCommand(CLI::App* app, std::function<int()>* chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const command = AddCommand(
      app, "why", "explain why a node is on its device", [flags] { return RunWhy(*flags); },
      chosen);
  command->add_option("node", flags->node, "name of the node")->required();
  AddGraphArgument(command, "graph", &flags->graph);
  AddClusterFlags(command, flags.get());
  command->add_flag("--json", flags->as_json, "for programs");
}

}  // namespace millrace
