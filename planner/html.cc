// SPDX-License-Identifier: Apache-2.0
#include "planner/html.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "graph/dot.h"
#include "graph/graph_def_io.h"
#include "planner/explanations.h"
#include "planner/view_files.h"  // generated from view.html, view.css and view.js

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestAttr = 300;

// Texts that many nodes share, by number.
class Strings {
 public:
  int Number(const std::string& text) {
    const auto [at, is_new] = numbers_.try_emplace(text, static_cast<int>(list_.size()));
    if (is_new) list_.push_back(text);
    return at->second;
  }
  Json Take() { return std::move(list_); }

 private:
  StringMap<int> numbers_;
  Json list_ = Json::array();
};

std::string AttrText(const std::string& name, const pb::AttrValue& value) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  printer.PrintToString(value, &text);
  if (text.size() > kLongestAttr) {
    text = StrCat(text.substr(0, kLongestAttr), "... (", text.size(), " characters)");
  }
  return StrCat(name, "=", StripWhitespace(text));
}

// The lines of a chain but the first, which has the name; from "request:" on it is one text,
// which groups with the same choice share.
std::vector<std::string> LinesOf(const Explanation& known) {
  std::vector<std::string> lines;
  if (known.chain.empty()) {
    if (!known.requested.empty()) lines.push_back(StrCat("asks for ", known.requested));
    if (!known.origin.empty()) lines.push_back(StrCat("made at ", known.origin));
    lines.push_back(StrCat("rule ", known.rule, ": ", known.why));
    return lines;
  }
  std::string_view rest = known.chain;
  if (!known.requested.empty()) lines.push_back(StrCat("asks for ", known.requested));
  rest.remove_prefix(std::min(rest.size(), rest.find('\n') + 1));
  while (!rest.empty()) {
    const std::size_t end = rest.starts_with("  request:") ? rest.size() : rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(rest.size(), end == std::string_view::npos ? end : end + 1));
    while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
    if (line.starts_with("  ")) line.remove_prefix(2);
    lines.emplace_back(line);
  }
  return lines;
}

class Writer {
 public:
  Writer(const DataflowGraph& graph, const ShapeRefiner& shapes,
         const StringMap<Explanation>& explanations)
      : graph_(graph), shapes_(shapes), explanations_(explanations) {
    std::set<std::string> devices;
    for (const Node* node : graph.OpNodes()) {
      const int number = static_cast<int>(number_.size());
      number_[node->id()] = number;
      devices.insert(node->assigned_device());
    }
    for (const std::string& device : devices) {
      device_number_[device] = static_cast<int>(device_number_.size());
    }
  }

  Json Write(std::string_view title) {
    Json nodes = Json::array();
    for (const Node* node : graph_.OpNodes()) nodes.push_back(ToJson(*node));
    Json devices = Json::array();
    for (const auto& [device, number] : device_number_) devices.push_back(device);
    return {{"title", title},
            {"devices", std::move(devices)},
            {"strings", strings_.Take()},
            {"nodes", std::move(nodes)}};
  }

 private:
  // What view.js expects.
  Json ToJson(const Node& node) {
    Json inputs = Json::array(), bytes = Json::array(), sizes = Json::array();
    for (const Edge* edge : node.in_edges()) {
      if (!edge->src->IsOp()) continue;
      inputs.push_back(number_.at(edge->src->id()));
      inputs.push_back(edge->IsControl() ? -1 : edge->src_output);
    }
    for (int i = 0; i < node.num_outputs(); ++i) {
      bytes.push_back(OutputBytes(node, i, shapes_));
      sizes.push_back(strings_.Number(
          StrCat(DataTypeName(node.output_types()[i]), shapes_.shape(&node, i).DebugString())));
    }
    pb::NodeDef def;
    ExportNode(node, {}, &def);
    Json attrs = Json::array();
    const std::map<std::string, pb::AttrValue> sorted(def.attr().begin(), def.attr().end());
    for (const auto& [name, value] : sorted) {
      attrs.push_back(strings_.Number(AttrText(name, value)));
    }
    Json why = Json::array();
    int rule = 0, leader = -1;
    if (const auto it = explanations_.find(node.name()); it != explanations_.end()) {
      rule = it->second.rule;
      for (const std::string& line : LinesOf(it->second)) why.push_back(strings_.Number(line));
      const Node* const first = graph_.FindNode(GroupOf(it->second.chain));
      if (first != nullptr) leader = number_.at(first->id());
    }
    return {node.name(),
            strings_.Number(node.type()),
            device_number_.at(node.assigned_device()),
            rule,
            std::move(inputs),
            std::move(bytes),
            std::move(sizes),
            std::move(attrs),
            std::move(why),
            leader};
  }

  const DataflowGraph& graph_;
  const ShapeRefiner& shapes_;
  const StringMap<Explanation>& explanations_;
  std::map<int, int> number_;  // by node id
  std::map<std::string, int> device_number_;
  Strings strings_;
};

void Put(std::string_view mark, std::string_view text, std::string* page) {
  const std::size_t at = page->find(mark);
  if (at != std::string::npos) page->replace(at, mark.size(), text);
}

}  // namespace

std::string ToHtml(std::string_view title, const DataflowGraph& graph, const ShapeRefiner& shapes,
                   const StringMap<Explanation>& explanations) {
  std::string data = Writer(graph, shapes, explanations)
                         .Write(title)
                         .dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  // Nothing in it may look like the end of its element, or the begin of a comment.
  std::string safe;
  safe.reserve(data.size());
  for (const char c : data) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  std::string page = kViewHtml;
  Put("@STYLE@", kViewStyle, &page);
  Put("@SCRIPT@", kViewScript, &page);
  Put("@DATA@", safe, &page);  // last: it may hold anything
  return page;
}

}  // namespace millrace
