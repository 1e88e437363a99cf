// SPDX-License-Identifier: Apache-2.0
#include "planner/diff.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/strings.h"
#include "graph/dot.h"
#include "graph/shape_refiner.h"
#include "planner/matching.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;
using Vertex = MeaningGraph::Vertex;

constexpr std::size_t kShownNames = 20;

// A value that has to go to another task: once, however many read it there.
struct Cut {
  int node, slot;
  std::string from, to;
  friend auto operator<=>(const Cut&, const Cut&) = default;
};

class Plan {
 public:
  explicit Plan(const DataflowGraph& graph) : graph_(graph), meaning_(MeaningOf(graph)) {
    shapes_.AddGraph(graph).IgnoreError();  // what it learned before an error is right
    for (const Vertex& vertex : meaning_.vertices) {
      const std::string to = TaskPartOf(vertex.device);
      for (const auto& [src, slot] : vertex.inputs) AddCut(src, slot, to);
      for (const int src : vertex.controls) AddCut(src, kControlSlot, to);
    }
  }

  const MeaningGraph& meaning() const { return meaning_; }
  const Vertex& vertex(int v) const { return meaning_.vertices[v]; }
  const std::set<Cut>& cuts() const { return cuts_; }

  PlanDiff::CutEdge Describe(const Cut& cut) const {
    const Node& node = *vertex(cut.node).node;
    if (cut.slot < 0) return {StrCat("^", node.name()), cut.from, cut.to, 0};
    return {StrCat(node.name(), ":", cut.slot), cut.from, cut.to, Bytes(cut)};
  }

  std::map<std::pair<std::string, std::string>, TransferSum> Links() const {
    std::map<std::pair<std::string, std::string>, TransferSum> links;
    for (const Cut& cut : cuts_) {
      TransferSum& link = links[{cut.from, cut.to}];
      if (cut.slot < 0) {
        ++link.controls;
        continue;
      }
      ++link.tensors;
      const int64_t bytes = Bytes(cut);
      link.not_exact += bytes < 0;
      link.bytes += bytes < 0 ? ByteRange{0, kUnbounded} : ByteRange{bytes, bytes};
    }
    return links;
  }

  std::map<std::string, TaskLoad> Loads() const {
    std::map<std::string, TaskLoad> loads;
    for (const Vertex& vertex : meaning_.vertices) {
      if (!IsVariable(*vertex.node)) continue;
      TaskLoad& load = loads[TaskPartOf(vertex.device)];
      load.task = TaskPartOf(vertex.device);
      const ByteRange bytes = VariableBytes(*vertex.node);
      ++load.variables;
      load.not_exact += !bytes.IsExact();
      load.bytes += bytes;
    }
    return loads;
  }

 private:
  void AddCut(int src, int slot, const std::string& to) {
    if (src < 0) return;
    const std::string from = TaskPartOf(vertex(src).device);
    if (from != to) cuts_.insert({src, slot, from, to});
  }
  int64_t Bytes(const Cut& cut) const {
    return OutputBytes(*vertex(cut.node).node, cut.slot, shapes_);
  }

  const DataflowGraph& graph_;
  const MeaningGraph meaning_;
  ShapeRefiner shapes_;
  std::set<Cut> cuts_;
};

class Comparison {
 public:
  Comparison(const Plan& a, const Plan& b)
      : a_(a), b_(b), to_b_(MatchNodes(a.meaning(), b.meaning())) {}

  PlanDiff Run() {
    CompareNodes();
    CompareCuts();
    CompareLinks();
    CompareLoads();
    return std::move(diff_);
  }

 private:
  void CompareNodes() {
    std::vector<bool> is_matched(b_.meaning().vertices.size());
    for (std::size_t v = 0; v < to_b_.size(); ++v) {
      const Vertex& x = a_.vertex(static_cast<int>(v));
      if (to_b_[v] < 0) {
        diff_.removed.push_back({x.node->name(), "", x.node->type(), x.device});
        continue;
      }
      is_matched[to_b_[v]] = true;
      const Vertex& y = b_.vertex(to_b_[v]);
      const auto change = [&](std::string what) {
        return PlanDiff::NodeChange{x.node->name(), y.node->name(), x.node->type(),
                                    std::move(what)};
      };
      if (x.device != y.device) {
        diff_.moved.push_back(change(StrCat(x.device, " -> ", y.device)));
      }
      if (const std::string what = Differences(x, y); !what.empty()) {
        diff_.changed.push_back(change(what));
      }
      if (x.node->name() != y.node->name()) {
        diff_.renamed.emplace_back(x.node->name(), y.node->name());
      }
    }
    for (std::size_t w = 0; w < is_matched.size(); ++w) {
      const Vertex& y = b_.vertex(static_cast<int>(w));
      if (!is_matched[w]) diff_.added.push_back({"", y.node->name(), y.node->type(), y.device});
    }
  }

  // Besides the device.
  std::string Differences(const Vertex& x, const Vertex& y) const {
    std::vector<std::string> what;
    if (x.op != y.op) what.push_back("function");
    std::map<std::string, std::pair<std::string, std::string>> attrs;
    for (const auto& [name, text] : x.attrs) attrs[name].first = text;
    for (const auto& [name, text] : y.attrs) attrs[name].second = text;
    for (const auto& [name, texts] : attrs) {
      if (texts.first != texts.second) what.push_back(StrCat("attribute ", name));
    }
    for (std::size_t i = 0; i < std::max(x.inputs.size(), y.inputs.size()); ++i) {
      const bool same = i < x.inputs.size() && i < y.inputs.size() &&
                        Mapped(x.inputs[i].node) == y.inputs[i].node &&
                        x.inputs[i].slot == y.inputs[i].slot;
      if (!same) what.push_back(StrCat("input ", i));
    }
    if (MappedAll(x.controls) != y.controls) what.push_back("control inputs");
    if (MappedAll(x.classes, static_cast<int>(to_b_.size())) !=
        OnlyNodes(y.classes, static_cast<int>(b_.meaning().vertices.size()))) {
      what.push_back("_class");
    }
    return StrJoin(what, ", ");
  }

  int Mapped(int v) const { return v < 0 ? v : to_b_[v] < 0 ? -2 : to_b_[v]; }
  std::vector<int> MappedAll(const std::vector<int>& nodes, int most = INT32_MAX) const {
    std::vector<int> mapped;
    for (const int v : nodes) mapped.push_back(v < most ? Mapped(v) : INT32_MAX);
    std::sort(mapped.begin(), mapped.end());
    return mapped;
  }
  // Labels that are no nodes are all alike here; who shares one is in the hashes.
  static std::vector<int> OnlyNodes(std::vector<int> nodes, int most) {
    for (int& v : nodes) v = v < most ? v : INT32_MAX;
    std::sort(nodes.begin(), nodes.end());
    return nodes;
  }

  void CompareCuts() {
    std::set<Cut> mapped;
    for (const Cut& cut : a_.cuts()) {
      Cut other = cut;
      other.node = to_b_[cut.node];
      if (other.node < 0 || !b_.cuts().contains(other)) {
        diff_.removed_cuts.push_back(a_.Describe(cut));
      }
      if (other.node >= 0) mapped.insert(other);
    }
    for (const Cut& cut : b_.cuts()) {
      if (!mapped.contains(cut)) diff_.new_cuts.push_back(b_.Describe(cut));
    }
  }

  void CompareLinks() {
    std::map<std::pair<std::string, std::string>, PlanDiff::LinkChange> changes;
    for (auto& [ends, link] : a_.Links()) changes[ends].before = link;
    for (auto& [ends, link] : b_.Links()) changes[ends].after = link;
    for (auto& [ends, change] : changes) {
      std::tie(change.from, change.to) = ends;
      const TransferSum &x = change.before, &y = change.after;
      if (x.bytes == y.bytes && x.tensors == y.tensors && x.controls == y.controls) continue;
      diff_.links.push_back(std::move(change));
    }
  }

  void CompareLoads() {
    std::map<std::string, PlanDiff::LoadChange> changes;
    for (const auto& [task, load] : a_.Loads()) changes[task].before = load;
    for (const auto& [task, load] : b_.Loads()) changes[task].after = load;
    for (auto& [task, change] : changes) {
      if (change.before.bytes == change.after.bytes &&
          change.before.variables == change.after.variables) {
        continue;
      }
      change.before.task = change.after.task = task;
      diff_.loads.push_back(std::move(change));
    }
  }

  const Plan &a_, &b_;
  const std::vector<int> to_b_;
  PlanDiff diff_;
};

std::string NameOf(const PlanDiff::NodeChange& change) {
  if (change.name.empty()) return change.other_name;
  if (change.other_name.empty() || change.name == change.other_name) return change.name;
  return StrCat(change.name, " = ", change.other_name);
}

void AddNodes(std::string_view title, const std::vector<PlanDiff::NodeChange>& changes,
              std::string* text) {
  if (changes.empty()) return;
  StrAppend(text, title, " (", changes.size(), "):\n");
  for (const auto& change : changes) {
    StrAppend(text, "  ", NameOf(change), " (", change.op, "): ", change.what, "\n");
  }
}

void AddCuts(std::string_view title, const std::vector<PlanDiff::CutEdge>& cuts,
             std::string* text) {
  if (cuts.empty()) return;
  StrAppend(text, title, " (", cuts.size(), "):\n");
  for (const auto& cut : cuts) {
    StrAppend(text, "  ", cut.tensor, ": ", cut.from, " -> ", cut.to, ", ",
              cut.bytes < 0 ? "?" : StrCat(cut.bytes), " bytes\n");
  }
}

Json ToJson(const ByteRange& range) {
  Json json = {{"least", range.least}};
  json["most"] = range.most == kUnbounded ? Json() : Json(range.most);
  return json;
}

}  // namespace

PlanDiff DiffPlans(const DataflowGraph& before, const DataflowGraph& after) {
  const Plan a(before), b(after);
  return Comparison(a, b).Run();
}

std::string DiffToText(const PlanDiff& diff) {
  std::string text;
  AddNodes("moved", diff.moved, &text);
  AddNodes("changed", diff.changed, &text);
  AddNodes("only in the first, no counterpart found", diff.removed, &text);
  AddNodes("only in the second, no counterpart found", diff.added, &text);
  AddCuts("new cut edges", diff.new_cuts, &text);
  AddCuts("cut edges that are gone", diff.removed_cuts, &text);
  if (!diff.links.empty()) text += "bytes of links, if the whole graph runs once:\n";
  for (const auto& link : diff.links) {
    StrAppend(&text, "  ", link.from, " -> ", link.to, ": ", ToText(link.before.bytes), " -> ",
              ToText(link.after.bytes), " bytes, ", link.before.tensors, " -> ", link.after.tensors,
              " tensors, ", link.before.controls, " -> ", link.after.controls, " control edges\n");
  }
  if (!diff.loads.empty()) text += "variables of tasks:\n";
  for (const auto& load : diff.loads) {
    StrAppend(&text, "  ", load.before.task, ": ", ToText(load.before.bytes), " -> ",
              ToText(load.after.bytes), " bytes, ", load.before.variables, " -> ",
              load.after.variables, " variables\n");
  }
  if (diff.IsEmpty()) text += "no difference\n";
  if (!diff.renamed.empty()) {
    StrAppend(&text, "no difference: ", diff.renamed.size(),
              " nodes have other names and were matched by what they do:\n");
    for (std::size_t i = 0; i < std::min(kShownNames, diff.renamed.size()); ++i) {
      StrAppend(&text, "  ", diff.renamed[i].first, " = ", diff.renamed[i].second, "\n");
    }
    if (diff.renamed.size() > kShownNames) {
      StrAppend(&text, "  and ", diff.renamed.size() - kShownNames, " more\n");
    }
  }
  return text;
}

std::string DiffToJson(const PlanDiff& diff) {
  Json json = {{"format", "millrace diff 1"}, {"same", diff.IsEmpty()}};
  const auto add_nodes = [&](const char* key, const std::vector<PlanDiff::NodeChange>& changes) {
    Json& list = json[key] = Json::array();
    for (const auto& c : changes) {
      list.push_back({{"first", c.name}, {"second", c.other_name}, {"op", c.op}, {"what", c.what}});
    }
  };
  add_nodes("moved", diff.moved);
  add_nodes("changed", diff.changed);
  add_nodes("removed", diff.removed);
  add_nodes("added", diff.added);
  const auto add_cuts = [&](const char* key, const std::vector<PlanDiff::CutEdge>& cuts) {
    Json& list = json[key] = Json::array();
    for (const auto& c : cuts) {
      list.push_back({{"tensor", c.tensor},
                      {"from", c.from},
                      {"to", c.to},
                      {"bytes", c.bytes < 0 ? Json() : Json(c.bytes)}});
    }
  };
  add_cuts("new_cuts", diff.new_cuts);
  add_cuts("removed_cuts", diff.removed_cuts);
  Json& links = json["links"] = Json::array();
  for (const auto& link : diff.links) {
    links.push_back({{"from", link.from},
                     {"to", link.to},
                     {"before", ToJson(link.before.bytes)},
                     {"after", ToJson(link.after.bytes)}});
  }
  Json& loads = json["loads"] = Json::array();
  for (const auto& load : diff.loads) {
    loads.push_back({{"task", load.before.task},
                     {"before", ToJson(load.before.bytes)},
                     {"after", ToJson(load.after.bytes)},
                     {"variables_before", load.before.variables},
                     {"variables_after", load.after.variables}});
  }
  Json& renamed = json["renamed"] = Json::array();
  for (const auto& [first, second] : diff.renamed) {
    renamed.push_back({{"first", first}, {"second", second}});
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace millrace
