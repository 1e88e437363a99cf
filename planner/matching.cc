// SPDX-License-Identifier: Apache-2.0
#include "planner/matching.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "base/hash.h"
#include "base/string_map.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "graph/graph_def_io.h"

namespace millrace {
namespace {

constexpr std::string_view kClassPrefix = "loc:@";

bool OnlyNames(const std::string& attr, const Node& node) {
  static const std::set<std::string_view> always = {"_class", kOriginAttr, kDeviceOriginAttr,
                                                    "_output_shapes"};
  static const std::set<std::string_view> transfers = {"_Send", "_Recv", "_HostSend", "_HostRecv"};
  if (always.contains(attr)) return true;
  return transfers.contains(node.type()) &&
         (attr == "tensor_name" || attr == "send_device_incarnation");
}

// What the functions do, by name.
StringMap<std::string> Bodies(const DataflowGraph& graph) {
  StringMap<std::string> bodies;
  if (graph.library() == nullptr) return bodies;
  for (const auto& function : graph.library()->functions()) {
    pb::FunctionDef copy = function->def;
    copy.mutable_signature()->clear_name();
    bodies[function->name()] = StrCat("function ", Hex16(Hash64(copy.DebugString())));
  }
  return bodies;
}

std::string AttrText(pb::AttrValue value, const StringMap<std::string>& bodies) {
  if (value.has_func()) {
    const auto body = bodies.find(value.func().name());
    if (body != bodies.end()) value.mutable_func()->set_name(body->second);
  }
  // Map entries have no order of their own, which DebugString gives them.
  return value.ShortDebugString();
}

std::string Canonical(const std::string& device) {
  StatusOr<DeviceName> name = DeviceName::Parse(device);
  if (!name.ok()) return device;
  if (name->job && !name->replica) name->replica = 0;
  return name->ToString();
}

using Colours = std::vector<uint64_t>;

// Hashes of one graph.
class Colouring {
 public:
  explicit Colouring(const MeaningGraph& graph, std::vector<int> order)
      : graph_(graph), order_(std::move(order)), readers_(graph.vertices.size()) {
    labels_.resize(graph.num_labels);
    members_.resize(graph.vertices.size());
    const int n = static_cast<int>(graph.vertices.size());
    for (int v = 0; v < n; ++v) {
      const MeaningGraph::Vertex& vertex = graph.vertices[v];
      for (int i = 0; i < static_cast<int>(vertex.inputs.size()); ++i) {
        const auto& [src, slot] = vertex.inputs[i];
        if (src >= 0) readers_[src].push_back({v, slot, i});
      }
      for (const int src : vertex.controls) readers_[src].push_back({v, -1, -1});
      for (const int c : vertex.classes) (c < n ? members_[c] : labels_[c - n]).push_back(v);
    }
  }

  struct Reader {
    int node, src_slot, dst_slot;
  };
  const std::vector<Reader>& readers(int v) const { return readers_[v]; }

  // Of a node by itself; that of a matched one is the number of its pair.
  Colours Base(bool devices, const std::vector<int>& pair_of) const {
    Colours colours(graph_.vertices.size());
    for (std::size_t v = 0; v < colours.size(); ++v) {
      const MeaningGraph::Vertex& vertex = graph_.vertices[v];
      if (pair_of[v] >= 0) {
        colours[v] = Hash64(StrCat("pair ", pair_of[v]));
        continue;
      }
      std::string text = vertex.op;
      for (const auto& [name, value] : vertex.attrs) StrAppend(&text, "\n", name, "=", value);
      if (devices) StrAppend(&text, "\n@", vertex.device);
      colours[v] = Hash64(text);
    }
    return colours;
  }

  // With everything before and after each node.
  Colours Deep(const Colours& base) const {
    Colours colours = base, done = base;
    for (const int v : order_) done[v] = colours[v] = Hash64Combine(base[v], Inputs(v, done));
    for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
      done[*it] = Hash64Combine(colours[*it], Readers(*it, done));
    }
    return Around(done, 2);
  }

  // With what is up to `edges` edges away.
  Colours Around(Colours colours, int edges) const {
    for (int i = 0; i < edges; ++i) {
      Colours next(colours.size());
      for (std::size_t k = 0; k < colours.size(); ++k) {
        const int v = static_cast<int>(k);
        next[k] = Hash64Combine(Hash64Combine(colours[k], Inputs(v, colours)),
                                Hash64Combine(Readers(v, colours), Classes(v, colours)));
      }
      colours = std::move(next);
    }
    return colours;
  }

 private:
  static uint64_t Sorted(std::vector<uint64_t> parts, uint64_t seed) {
    std::sort(parts.begin(), parts.end());
    for (const uint64_t part : parts) seed = Hash64Combine(seed, part * 0x9ddfea08eb382d69ull);
    return seed;
  }

  uint64_t Inputs(int v, const Colours& colours) const {
    uint64_t hash = 1;
    for (const auto& [src, slot] : graph_.vertices[v].inputs) {
      hash = Hash64Combine(hash * 31, src < 0 ? 0 : colours[src]) + static_cast<uint64_t>(slot);
    }
    std::vector<uint64_t> controls;
    for (const int src : graph_.vertices[v].controls) controls.push_back(colours[src]);
    return Sorted(std::move(controls), hash);
  }

  uint64_t Readers(int v, const Colours& colours) const {
    std::vector<uint64_t> parts;
    for (const Reader& reader : readers_[v]) {
      parts.push_back(
          Hash64Combine(colours[reader.node], static_cast<uint64_t>(reader.src_slot) * 1000003 +
                                                  static_cast<uint64_t>(reader.dst_slot)));
    }
    return Sorted(std::move(parts), 2);
  }

  uint64_t Classes(int v, const Colours& colours) const {
    const int n = static_cast<int>(colours.size());
    std::vector<uint64_t> parts;
    for (const int c : graph_.vertices[v].classes) {
      if (c < n) {
        parts.push_back(colours[c] * 3);
        continue;
      }
      std::vector<uint64_t> members;
      for (const int m : labels_[c - n]) members.push_back(colours[m]);
      parts.push_back(Sorted(std::move(members), 5));
    }
    for (const int m : members_[v]) parts.push_back(colours[m] * 7);
    return Sorted(std::move(parts), 3);
  }

  const MeaningGraph& graph_;
  const std::vector<int> order_;
  std::vector<std::vector<Reader>> readers_;
  std::vector<std::vector<int>> members_, labels_;  // of classes, by node and by label
};

// Nodes after their inputs, by number.
std::vector<int> OrderOf(const MeaningGraph& graph) {
  const int n = static_cast<int>(graph.vertices.size());
  std::vector<int> waits(n), order;
  std::vector<std::vector<int>> readers(n);
  for (int v = 0; v < n; ++v) {
    const auto wait = [&](int src) {
      if (src < 0 || graph.vertices[src].op.ends_with("NextIteration")) return;
      readers[src].push_back(v);
      ++waits[v];
    };
    for (const auto& use : graph.vertices[v].inputs) wait(use.node);
    for (const int src : graph.vertices[v].controls) wait(src);
    if (waits[v] == 0) order.push_back(v);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const int reader : readers[order[i]]) {
      if (--waits[reader] == 0) order.push_back(reader);
    }
  }
  return order;
}

class Matcher {
 public:
  Matcher(const MeaningGraph& a, const MeaningGraph& b)
      : a_(a),
        b_(b),
        colouring_a_(a, OrderOf(a)),
        colouring_b_(b, OrderOf(b)),
        pair_of_a_(a.vertices.size(), -1),
        pair_of_b_(b.vertices.size(), -1),
        to_b_(a.vertices.size(), -1) {
    for (std::size_t v = 0; v < b.vertices.size(); ++v) {
      by_name_b_[b.vertices[v].node->name()] = static_cast<int>(v);
    }
  }

  std::vector<int> Match() {
    Pass(/*devices=*/true, /*edges=*/-1);
    Pass(/*devices=*/false, /*edges=*/-1);
    MatchNames(/*attrs=*/true);
    for (const int edges : {3, 2, 1}) Pass(/*devices=*/false, edges);
    MatchNames(/*attrs=*/false);
    return to_b_;
  }

 private:
  int SameName(int v) const {
    const auto found = by_name_b_.find(a_.vertices[v].node->name());
    return found == by_name_b_.end() ? -1 : found->second;
  }

  void MatchNames(bool attrs) {
    for (std::size_t v = 0; v < to_b_.size(); ++v) {
      const int same = SameName(static_cast<int>(v));
      if (to_b_[v] >= 0 || same < 0 || pair_of_b_[same] >= 0) continue;
      const MeaningGraph::Vertex &x = a_.vertices[v], &y = b_.vertices[same];
      if (x.op == y.op && (!attrs || x.attrs == y.attrs)) Pair(static_cast<int>(v), same);
    }
    fresh_.clear();  // nothing follows for their neighbours
  }

  void Pair(int v, int w) {
    to_b_[v] = w;
    pair_of_a_[v] = pair_of_b_[w] = num_pairs_++;
    fresh_.emplace_back(v, w);
  }

  bool CanPair(int v, int w) const {
    return v >= 0 && w >= 0 && to_b_[v] < 0 && pair_of_b_[w] < 0 && colours_a_[v] == colours_b_[w];
  }

  // Neighbours of what has been paired, where there is no choice or names agree.
  void Spread() {
    while (!fresh_.empty()) {
      const auto [v, w] = fresh_.back();
      fresh_.pop_back();
      const auto& in_a = a_.vertices[v].inputs;
      const auto& in_b = b_.vertices[w].inputs;
      for (std::size_t i = 0; i < in_a.size() && i < in_b.size(); ++i) {
        if (in_a[i].slot == in_b[i].slot && CanPair(in_a[i].node, in_b[i].node)) {
          Pair(in_a[i].node, in_b[i].node);
        }
      }
      using Key = std::tuple<int, int, uint64_t>;
      std::map<Key, std::pair<std::vector<int>, std::vector<int>>> groups;
      for (const auto& r : colouring_a_.readers(v)) {
        if (to_b_[r.node] < 0) {
          groups[{r.src_slot, r.dst_slot, colours_a_[r.node]}].first.push_back(r.node);
        }
      }
      for (const auto& r : colouring_b_.readers(w)) {
        if (pair_of_b_[r.node] < 0) {
          groups[{r.src_slot, r.dst_slot, colours_b_[r.node]}].second.push_back(r.node);
        }
      }
      for (const auto& [key, group] : groups) {
        if (group.first.size() == 1 && group.second.size() == 1 &&
            CanPair(group.first[0], group.second[0])) {
          Pair(group.first[0], group.second[0]);
        }
      }
    }
  }

  void Pass(bool devices, int edges) {
    const Colours base_a = colouring_a_.Base(devices, pair_of_a_);
    const Colours base_b = colouring_b_.Base(devices, pair_of_b_);
    colours_a_ = edges < 0 ? colouring_a_.Deep(base_a) : colouring_a_.Around(base_a, edges);
    colours_b_ = edges < 0 ? colouring_b_.Deep(base_b) : colouring_b_.Around(base_b, edges);
    struct Class {
      std::vector<int> first, second;  // of both graphs, not paired yet
      std::size_t next = 0;            // those of `second` before it are paired
    };
    std::map<uint64_t, Class> classes;
    for (std::size_t v = 0; v < colours_a_.size(); ++v) {
      if (to_b_[v] < 0) classes[colours_a_[v]].first.push_back(static_cast<int>(v));
    }
    for (std::size_t w = 0; w < colours_b_.size(); ++w) {
      if (pair_of_b_[w] < 0) classes[colours_b_[w]].second.push_back(static_cast<int>(w));
    }
    // Where there is no choice.
    for (const auto& [colour, members] : classes) {
      if (members.first.size() == 1 && members.second.size() == 1 &&
          CanPair(members.first[0], members.second[0])) {
        Pair(members.first[0], members.second[0]);
      }
    }
    Spread();
    // One choice at a time, by name if that is one of them.
    for (std::size_t k = 0; k < to_b_.size(); ++k) {
      const int v = static_cast<int>(k);
      if (const int same = SameName(v); CanPair(v, same)) {
        Pair(v, same);
        Spread();
      }
    }
    for (std::size_t k = 0; k < to_b_.size(); ++k) {
      const int v = static_cast<int>(k);
      if (to_b_[v] >= 0) continue;
      Class& members = classes[colours_a_[v]];
      if (members.first.size() != members.second.size()) continue;
      while (members.next < members.second.size() &&
             pair_of_b_[members.second[members.next]] >= 0) {
        ++members.next;
      }
      if (members.next == members.second.size()) continue;
      Pair(v, members.second[members.next]);
      Spread();
    }
  }

  const MeaningGraph &a_, &b_;
  const Colouring colouring_a_, colouring_b_;
  std::vector<int> pair_of_a_, pair_of_b_, to_b_;
  StringMap<int> by_name_b_;
  Colours colours_a_, colours_b_;
  std::vector<std::pair<int, int>> fresh_;
  int num_pairs_ = 0;
};

}  // namespace

MeaningGraph MeaningOf(const DataflowGraph& placed) {
  const StringMap<std::string> bodies = Bodies(placed);
  MeaningGraph graph;
  std::vector<int> number(placed.num_node_ids(), -1);
  const std::vector<Node*> nodes = placed.OpNodes();
  for (std::size_t i = 0; i < nodes.size(); ++i) number[nodes[i]->id()] = static_cast<int>(i);
  StringMap<int> labels;
  for (const Node* node : nodes) {
    MeaningGraph::Vertex& vertex = graph.vertices.emplace_back();
    vertex.node = node;
    const auto body = bodies.find(node->type());
    vertex.op = body == bodies.end() ? node->type() : body->second;
    vertex.device = Canonical(node->assigned_device());
    pb::NodeDef def;
    ExportNode(*node, {.strip_default_attrs = true}, &def);
    for (const auto& [name, value] : def.attr()) {
      if (!OnlyNames(name, *node)) vertex.attrs.emplace_back(name, AttrText(value, bodies));
    }
    std::sort(vertex.attrs.begin(), vertex.attrs.end());
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Edge* const edge = node->input_edge(i);
      vertex.inputs.push_back(edge == nullptr
                                  ? MeaningGraph::Use{-1, 0}
                                  : MeaningGraph::Use{number[edge->src->id()], edge->src_output});
    }
    for (const Edge* edge : node->in_edges()) {
      if (edge->IsControl() && edge->src->IsOp()) {
        vertex.controls.push_back(number[edge->src->id()]);
      }
    }
    std::sort(vertex.controls.begin(), vertex.controls.end());
    using Names = std::vector<std::string>;
    for (const std::string& name : node->attrs().GetOr<Names>("_class", {})) {
      if (!name.starts_with(kClassPrefix)) continue;
      const Node* const other = placed.FindNode(name.substr(kClassPrefix.size()));
      const int next = static_cast<int>(nodes.size() + labels.size());
      vertex.classes.push_back(other != nullptr && other->IsOp()
                                   ? number[other->id()]
                                   : labels.try_emplace(name, next).first->second);
    }
    std::sort(vertex.classes.begin(), vertex.classes.end());
  }
  graph.num_labels = static_cast<int>(labels.size());
  return graph;
}

std::vector<int> MatchNodes(const MeaningGraph& a, const MeaningGraph& b) {
  return Matcher(a, b).Match();
}

}  // namespace millrace
