// SPDX-License-Identifier: Apache-2.0
#include "placer/conflict.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/string_map.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "placer/colocation.h"

namespace millrace {
namespace {

// How many nodes may be placed again, in all attempts together.
constexpr int64_t kMaxNodesTried = 4'000'000;
constexpr int kMaxLines = 20;
// Marks a node, in a graph that is tried, whose missing kernels are overlooked.
constexpr char kAnyKernel[] = "_any_kernel";
constexpr char kClass[] = "_class";

struct Constraint {
  enum class Kind { kPlaced, kRequest, kKernels, kEdge, kLabel };
  Kind kind;
  const Node* node;
  // Of an edge or label: what the node is tied to (null: nothing else has the label).
  const Node* other = nullptr;
  const Edge* edge = nullptr;
  JoinReason reason = JoinReason::kClass;
  std::string_view label = {};
};

class Conflict {
 public:
  Conflict(const DataflowGraph& graph, const PlacerInput& input, const PlacementAttempt& attempt)
      : graph_(graph), input_(input), attempt_(attempt) {
    for (const PlacerDevice& device : input.devices) {
      if (!std::count(types_.begin(), types_.end(), device.type)) types_.push_back(device.type);
    }
    relaxed_ = input;
    relaxed_.kernel = [this](const OpInfo& op, const AttrMap& attrs, std::string_view type) {
      return attrs.Has(kAnyKernel) ? std::optional<int>(0) : input_.kernel(op, attrs, type);
    };
  }

  std::string Explain(const Node& culprit) {
    Collect(culprit);
    std::vector<int> all(constraints_.size());
    for (int i = 0; i < static_cast<int>(all.size()); ++i) all[i] = i;
    if (!Fails(all, input_.allow_soft_placement)) return "";
    const bool soft_helps = !input_.allow_soft_placement && !Fails(all, true);
    const std::vector<int> least = Minimize(std::move(all));
    return Text(least, soft_helps);
  }

 private:
  // Everything that the culprit is tied to, nearest first.
  void Collect(const Node& culprit) {
    StringMap<std::vector<const Node*>> by_label;
    for (const Node* node : graph_.OpNodes()) {
      for (const std::string_view label : ClassLabels(*node)) {
        by_label[std::string(label)].push_back(node);
      }
    }
    std::vector<bool> seen(graph_.num_node_ids());
    std::vector<const Node*> queue;
    const auto visit = [&](const Node* node) {
      if (seen[node->id()]) return;
      seen[node->id()] = true;
      queue.push_back(node);
    };
    const auto visit_label = [&](std::string_view label) {
      if (const Node* named = graph_.FindNode(label); named != nullptr && named->IsOp()) {
        visit(named);
      }
      const auto others = by_label.find(label);
      if (others == by_label.end()) return;
      for (const Node* other : others->second) visit(other);
    };
    visit(&culprit);
    for (std::size_t i = 0; i < queue.size(); ++i) {
      const Node* const node = queue[i];
      AddOwn(*node);
      for (const Edge* edge : node->in_edges()) {
        const std::optional<JoinReason> reason = TiesTogether(*edge);
        if (!reason) continue;
        constraints_.push_back(
            {Constraint::Kind::kEdge, node, edge->src, edge, *reason, std::string_view()});
        visit(edge->src);
      }
      for (const Edge* edge : node->out_edges()) {
        if (TiesTogether(*edge)) visit(edge->dst);
      }
      for (const std::string_view label : ClassLabels(*node)) {
        const Node* named = graph_.FindNode(label);
        constraints_.push_back(
            {Constraint::Kind::kLabel, node, named, nullptr, JoinReason::kClass, label});
        visit_label(label);
      }
      visit_label(node->name());
    }
  }

  // What the node brings along by itself.
  void AddOwn(const Node& node) {
    if (!node.assigned_device().empty()) {
      constraints_.push_back({Constraint::Kind::kPlaced, &node});
    } else if (!node.requested_device().empty()) {
      constraints_.push_back({Constraint::Kind::kRequest, &node});
    }
    const bool everywhere = std::all_of(types_.begin(), types_.end(),
                                        [&](const auto& type) { return HasKernel(node, type); });
    if (!everywhere) constraints_.push_back({Constraint::Kind::kKernels, &node});
  }

  bool HasKernel(const Node& node, std::string_view type) const {
    const bool is_function =
        graph_.library() != nullptr && graph_.ops().Find(node.type()) != &node.op();
    return is_function || input_.kernel(node.op(), node.attrs(), type).has_value();
  }

  // Whether the nodes of these constraints cannot be placed under them.
  bool Fails(const std::vector<int>& set, bool soft) {
    std::vector<const Node*> nodes;
    for (const int i : set) {
      nodes.push_back(constraints_[i].node);
      if (constraints_[i].other != nullptr) nodes.push_back(constraints_[i].other);
    }
    std::sort(nodes.begin(), nodes.end(), [](auto* a, auto* b) { return a->id() < b->id(); });
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    tried_ += static_cast<int64_t>(nodes.size());
    DataflowGraph part(&graph_.ops());
    if (graph_.library() != nullptr) part.set_library(graph_.library());
    for (const Node* node : nodes) {
      AttrMap attrs = node->attrs();
      attrs.Erase(kClass);
      attrs.Set(kAnyKernel, true);
      if (!part.AddNode(node->name(), node->type(), std::move(attrs)).ok()) return false;
    }
    std::vector<int> edges;
    for (const int i : set) {
      const Constraint& constraint = constraints_[i];
      Node* const node = part.FindNode(constraint.node->name());
      switch (constraint.kind) {
        case Constraint::Kind::kPlaced:
          node->set_assigned_device(constraint.node->assigned_device());
          break;
        case Constraint::Kind::kRequest:
          node->set_requested_device(constraint.node->requested_device());
          break;
        case Constraint::Kind::kKernels:
          node->mutable_attrs().Erase(kAnyKernel);
          break;
        case Constraint::Kind::kEdge:
          edges.push_back(i);
          break;
        case Constraint::Kind::kLabel: {
          auto labels = node->attrs().GetOr<std::vector<std::string>>(kClass, {});
          labels.push_back(StrCat("loc:@", constraint.label));
          node->mutable_attrs().Set(kClass, std::move(labels));
          break;
        }
      }
    }
    // The placer goes through edges in the order in which they were made.
    std::sort(edges.begin(), edges.end(),
              [&](int a, int b) { return constraints_[a].edge->id < constraints_[b].edge->id; });
    for (const int i : edges) {
      const Edge& edge = *constraints_[i].edge;
      if (!part.AddEdge(part.FindNode(edge.src->name()), edge.src_output,
                        part.FindNode(edge.dst->name()), edge.dst_input)
               .ok()) {
        return false;
      }
    }
    part.FixSourceAndSink();
    relaxed_.allow_soft_placement = soft;
    return !attempt_(&part, relaxed_).ok();
  }

  // Takes away whatever is not needed for the failure, in ever smaller pieces, the farthest
  // first. At the end nothing can be taken away alone.
  std::vector<int> Minimize(std::vector<int> set) {
    std::size_t piece = std::max<std::size_t>(1, set.size() / 2);
    while (true) {
      bool removed = false;
      for (std::size_t end = set.size(); end > 0 && set.size() > 1;) {
        if (tried_ > kMaxNodesTried) {
          cut_short_ = true;
          return set;
        }
        const std::size_t begin = end > piece ? end - piece : 0;
        std::vector<int> less(set.begin(), set.begin() + static_cast<std::ptrdiff_t>(begin));
        less.insert(less.end(), set.begin() + static_cast<std::ptrdiff_t>(end), set.end());
        if (!less.empty() && Fails(less, input_.allow_soft_placement)) {
          set = std::move(less);
          removed = true;
        }
        end = begin;
      }
      if (piece == 1 && !removed) return set;
      piece = std::max<std::size_t>(1, piece / 2);
    }
  }

  // ---- Words

  static std::string Describe(const Node& node) {
    return StrCat(node.name(), " (", node.type(), ")");
  }

  std::string TypesWithKernel(const Node& node) const {
    std::vector<std::string> types;
    for (const std::string& type : types_) {
      if (HasKernel(node, type)) types.push_back(type);
    }
    return StrJoin(types, ", ");
  }

  std::string TypesWithoutKernel(const Node& node) const {
    std::vector<std::string> types;
    for (const std::string& type : types_) {
      if (!HasKernel(node, type)) types.push_back(type);
    }
    return StrJoin(types, ", ");
  }

  std::string Describe(const Constraint& constraint) const {
    const Node& node = *constraint.node;
    std::string text = Describe(node);
    switch (constraint.kind) {
      case Constraint::Kind::kPlaced:
        StrAppend(&text, " was placed on ", node.assigned_device(), " before and stays there");
        break;
      case Constraint::Kind::kRequest:
        StrAppend(&text, " asks for ", node.requested_device());
        break;
      case Constraint::Kind::kKernels:
        if (TypesWithKernel(node).empty()) {
          StrAppend(&text, " has no kernel for any type of device");
        } else {
          StrAppend(&text, " has no kernel for ", TypesWithoutKernel(node), ", only for ",
                    TypesWithKernel(node));
        }
        break;
      case Constraint::Kind::kEdge:
        StrAppend(&text, " must be with ", Describe(*constraint.other), ": its input ",
                  constraint.edge->dst_input,
                  constraint.reason == JoinReason::kReferenceEdge  ? " is a reference"
                  : constraint.reason == JoinReason::kResourceEdge ? " is a resource"
                                                                   : " is a dataset");
        break;
      case Constraint::Kind::kLabel:
        if (constraint.other != nullptr) {
          StrAppend(&text, " wants to be with ", Describe(*constraint.other), ": its _class says");
        } else {
          StrAppend(&text, " wants to be with all that have the label: its _class says");
        }
        StrAppend(&text, " loc:@", constraint.label);
        break;
    }
    std::string_view by = node.device_origin();
    if (constraint.kind != Constraint::Kind::kRequest) by = "";
    if (!node.origin().empty() || !by.empty()) {
      StrAppend(&text, " (", node.origin(), node.origin().empty() || by.empty() ? "" : ", ", by,
                ")");
    }
    return text;
  }

  std::vector<std::string> JobList() const {
    std::vector<std::string> jobs;
    for (const PlacerDevice& device : input_.devices) {
      const StatusOr<DeviceName> name = DeviceName::Parse(device.name);
      if (name.ok() && name->job) jobs.push_back(*name->job);
    }
    std::sort(jobs.begin(), jobs.end());
    jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
    return jobs;
  }
  std::string Jobs() const { return StrJoin(JobList(), ", "); }

  // The job that the node asks for, if no device is in it.
  std::string UnknownJob(const Node& node) const {
    const StatusOr<DeviceName> name = DeviceName::Parse(node.requested_device());
    if (!name.ok() || !name->job) return "";
    const std::vector<std::string> jobs = JobList();
    return std::binary_search(jobs.begin(), jobs.end(), *name->job) ? "" : *name->job;
  }

  // What refuses the device by itself: its number in the text, and why.
  std::string Refusal(const PlacerDevice& device, const std::vector<int>& set) const {
    const StatusOr<DeviceName> name = DeviceName::Parse(device.name);
    if (!name.ok()) return "";
    for (int i = 0; i < static_cast<int>(set.size()); ++i) {
      const Constraint& constraint = constraints_[set[i]];
      const bool placed = constraint.kind == Constraint::Kind::kPlaced;
      if (placed || constraint.kind == Constraint::Kind::kRequest) {
        const StatusOr<DeviceName> wanted = DeviceName::Parse(
            placed ? constraint.node->assigned_device() : constraint.node->requested_device());
        if (!wanted.ok()) return StrCat("refused by ", i + 1, ": it is not the name of a device");
        if (wanted->Matches(*name)) continue;
        const std::string_view what = wanted->job && wanted->job != name->job ? "job"
                                      : wanted->replica && wanted->replica != name->replica
                                          ? "replica"
                                      : wanted->task && wanted->task != name->task ? "task"
                                      : wanted->type && wanted->type != name->type ? "type"
                                                                                   : "number";
        return StrCat("refused by ", i + 1, ": another ", what);
      }
      if (constraint.kind == Constraint::Kind::kKernels &&
          !HasKernel(*constraint.node, device.type)) {
        return StrCat("refused by ", i + 1, ": no kernel for ", device.type);
      }
    }
    return "";
  }

  std::string Text(std::vector<int> set, bool soft_helps) const {
    std::sort(set.begin(), set.end(), [&](int a, int b) {
      const Constraint &x = constraints_[a], &y = constraints_[b];
      return std::make_pair(x.node->id(), x.kind) < std::make_pair(y.node->id(), y.kind);
    });
    const int count = static_cast<int>(set.size());
    std::string text = "\n";
    if (cut_short_) {
      StrAppend(&text, "What conflicts is among these ", count,
                " constraints (the group is too large to say which):\n");
    } else if (count == 1) {
      StrAppend(&text, "What cannot be met:\n");
    } else {
      StrAppend(&text, "What conflicts, of which any one has to be given up:\n");
    }
    for (int i = 0; i < std::min(count, kMaxLines); ++i) {
      StrAppend(&text, "  ", i + 1, ". ", Describe(constraints_[set[i]]), "\n");
    }
    if (count > kMaxLines) StrAppend(&text, "  and ", count - kMaxLines, " more\n");
    std::vector<const PlacerDevice*> devices;
    for (const PlacerDevice& device : input_.devices) devices.push_back(&device);
    std::sort(devices.begin(), devices.end(),
              [](const auto* a, const auto* b) { return a->name < b->name; });
    StrAppend(&text, "Devices:\n");
    for (std::size_t i = 0; i < devices.size() && i < kMaxLines; ++i) {
      const std::string refusal = Refusal(*devices[i], set);
      StrAppend(&text, "  ", devices[i]->name, " ",
                refusal.empty() ? "refused by all of them together" : refusal, "\n");
    }
    if (devices.size() > kMaxLines) {
      StrAppend(&text, "  and ", devices.size() - kMaxLines, " more\n");
    }
    StrAppend(&text, "What would help:");
    for (const std::string& advice : Advice(set, soft_helps)) StrAppend(&text, "\n  - ", advice);
    return text;
  }

  std::vector<std::string> Advice(const std::vector<int>& set, bool soft_helps) const {
    std::vector<std::string> advice;
    const auto add = [&](std::string line) {
      if (!std::count(advice.begin(), advice.end(), line)) advice.push_back(std::move(line));
    };
    for (const int i : set) {
      if (static_cast<int>(advice.size()) >= kMaxLines) break;
      const Constraint& constraint = constraints_[i];
      const std::string& name = constraint.node->name();
      switch (constraint.kind) {
        case Constraint::Kind::kPlaced:
          add(StrCat("put ", name, " into a new session, where it can be placed anew"));
          break;
        case Constraint::Kind::kRequest:
          if (const std::string job = UnknownJob(*constraint.node); !job.empty()) {
            add(StrCat("open the session at a server of the cluster that has job ", job,
                       ", and do not filter it out: here are only ", Jobs()));
          }
          add(StrCat("let ", name, " ask for another device, or for none"));
          break;
        case Constraint::Kind::kKernels:
          add(TypesWithKernel(*constraint.node).empty()
                  ? StrCat("use another op than ", constraint.node->type(), " for ", name)
                  : StrCat("have ", name, " and what is with it run on ",
                           TypesWithKernel(*constraint.node)));
          break;
        case Constraint::Kind::kEdge:
          if (constraint.reason != JoinReason::kDatasetEdge) {
            add(StrCat(
                "let ", name, " take the value of ", constraint.other->name(), " instead of ",
                constraint.reason == JoinReason::kReferenceEdge ? "a reference" : "the resource",
                ", if it only reads"));
          }
          break;
        case Constraint::Kind::kLabel:
          add(StrCat("take loc:@", constraint.label, " away from ", name));
          break;
      }
    }
    if (soft_helps)
      add("allow soft placement: it gives up types and numbers of devices, and _class");
    return advice;
  }

  const DataflowGraph& graph_;
  const PlacerInput& input_;
  const PlacementAttempt& attempt_;
  PlacerInput relaxed_;
  std::vector<std::string> types_;
  std::vector<Constraint> constraints_;
  int64_t tried_ = 0;
  bool cut_short_ = false;
};

}  // namespace

std::string ExplainConflict(const DataflowGraph& graph, const PlacerInput& input,
                            const Node& culprit, const PlacementAttempt& attempt) {
  return Conflict(graph, input, attempt).Explain(culprit);
}

}  // namespace millrace
