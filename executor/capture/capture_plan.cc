// SPDX-License-Identifier: Apache-2.0
#include "executor/capture/capture_plan.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "base/strings.h"
#include "kernels/capturable_kernel.h"
#include "kernels/transfer_kernel.h"
#include "rendezvous/rendezvous.h"

namespace millrace {
namespace {

// Fewer operations are as quick without.
constexpr int kFewestOperations = 3;
constexpr uint32_t kSteers = kNodeMerge | kNodeSwitch | kNodeEnter | kNodeExit | kNodeNextIteration;

struct Place {
  std::size_t part = 0;
  int32_t node = 0;
};

const TransferKernel* TransferOf(const CompiledNode& node) {
  if (!(node.flags & kNodeTransfer)) return nullptr;
  return dynamic_cast<const TransferKernel*>(node.kernel);
}
bool IsReceive(const CompiledNode& node) { return (node.flags & kNodeAsync) != 0; }

Status Obstacle(const CompiledNode& node, std::string_view why) {
  return errors::FailedPrecondition("{{node ", node.kernel->name(), "}} (",
                                    node.kernel->def().name(), "): ", why);
}

// Sends and receives of all parts of a worker.
class Transfers {
 public:
  explicit Transfers(std::span<const CompiledGraph* const> parts) : parts_(parts) {
    for (std::size_t p = 0; p < parts.size(); ++p) {
      for (std::size_t n = 0; n < parts[p]->nodes().size(); ++n) {
        const CompiledNode& node = parts[p]->nodes()[n];
        const TransferKernel* const transfer = TransferOf(node);
        if (transfer == nullptr) continue;
        auto& ends = IsReceive(node) ? receives_ : sends_;
        ends[transfer->root_key()] = {p, static_cast<int32_t>(n)};
      }
    }
  }

  const Place* FindSend(const std::string& key) const { return Find(sends_, key); }
  const Place* FindReceive(const std::string& key) const { return Find(receives_, key); }

  // The first of `receives` in which a value that goes out of one of `sends` may come back, all of
  // one part, by way of other parts, or of other tasks, of which nothing is known; -1 if there is
  // none.
  int32_t ComeBack(std::size_t part, const std::vector<int32_t>& sends,
                   const std::vector<int32_t>& receives) const {
    std::vector<std::vector<bool>> seen;
    for (const CompiledGraph* graph : parts_) seen.emplace_back(graph->nodes().size());
    std::deque<Place> reached;
    const auto reach = [&](const Place& place) {
      if (seen[place.part][place.node]) return;
      seen[place.part][place.node] = true;
      reached.push_back(place);
    };
    for (const int32_t send : sends) reach({part, send});
    bool left_task = false;
    while (!reached.empty()) {
      const Place place = reached.front();
      reached.pop_front();
      const CompiledGraph& graph = *parts_[place.part];
      const CompiledNode& node = graph.nodes()[place.node];
      for (int32_t e = 0; e < node.num_edges; ++e) {
        reach({place.part, graph.edges()[node.edges_begin + e].dst});
      }
      const TransferKernel* const transfer = TransferOf(node);
      if (transfer == nullptr && (node.flags & kNodeAsync)) ReachWaiting(reach);
      if (transfer == nullptr || IsReceive(node)) continue;
      if (const Place* receive = FindReceive(transfer->root_key())) {
        reach(*receive);
      } else if (!left_task && !IsClients(transfer->root_key())) {
        left_task = true;
        for (const auto& [key, receive] : receives_) {
          if (FindSend(key) == nullptr && !IsClients(key) && !IsEarly(receive)) reach(receive);
        }
      }
    }
    for (const int32_t receive : receives) {
      if (seen[part][receive]) return receive;
    }
    return -1;
  }

 private:
  // What one kernel that waits does, as a queue's, another one may wait for.
  template <typename Reach>
  void ReachWaiting(const Reach& reach) const {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      for (std::size_t n = 0; n < parts_[p]->nodes().size(); ++n) {
        const CompiledNode& node = parts_[p]->nodes()[n];
        const bool waits = (node.flags & kNodeAsync) && TransferOf(node) == nullptr;
        if (waits) reach({p, static_cast<int32_t>(n)});
      }
    }
  }

  bool IsEarly(const Place& receive) const {
    return TransferOf(parts_[receive.part]->nodes()[receive.node])->is_early();
  }
  static const Place* Find(const StringMap<Place>& ends, const std::string& key) {
    const auto found = ends.find(key);
    return found == ends.end() ? nullptr : &found->second;
  }
  // What a client feeds or fetches is sent and received at the same device.
  static bool IsClients(const std::string& key) {
    const StatusOr<RendezvousKey> parsed = RendezvousKey::Parse(key);
    return parsed.ok() && parsed->src_device == parsed->dst_device;
  }

  const std::span<const CompiledGraph* const> parts_;
  StringMap<Place> sends_, receives_;
};

class Planner {
 public:
  Planner(std::span<const CompiledGraph* const> parts, std::size_t index)
      : parts_(parts), index_(index), graph_(*parts[index]), transfers_(parts) {}

  StatusOr<CapturePlan> Plan() {
    const std::size_t size = graph_.nodes().size();
    plan_.local_send.assign(size, -1);
    waits_.assign(size, 0);
    updates_.assign(size, false);
    enqueues_.assign(size, false);
    for (const CompiledNode& node : graph_.nodes()) {
      for (int32_t e = 0; e < node.num_edges; ++e) {
        ++waits_[graph_.edges()[node.edges_begin + e].dst];
      }
    }
    FindIdle();
    for (std::size_t n = 0; n < size; ++n) {
      MR_RETURN_IF_ERROR(Sort(static_cast<int32_t>(n), graph_.nodes()[n]));
    }
    if (num_operations_ < kFewestOperations) {
      return errors::FailedPrecondition("it enqueues ", num_operations_, " operations only");
    }
    std::vector<int32_t> receives;
    for (const CapturePlan::Head& head : plan_.heads) receives.push_back(head.node);
    const int32_t back = transfers_.ComeBack(index_, plan_.tails, receives);
    if (back >= 0) {
      return Obstacle(graph_.nodes()[back],
                      "what it receives depends, or may depend, on what the same step sends");
    }
    MR_RETURN_IF_ERROR(Order());
    return std::move(plan_);
  }

 private:
  Status Sort(int32_t n, const CompiledNode& node) {
    if (node.flags & (kSteers | kNodeHasRefs)) return Obstacle(node, "control flow or references");
    if (node.flags & kNodeNoCompute) return OkStatus();
    if (const TransferKernel* const transfer = TransferOf(node)) {
      return IsReceive(node) ? SortReceive(n, node, transfer->root_key())
                             : SortSend(n, node, transfer->root_key());
    }
    const auto* const kernel = dynamic_cast<const CapturableKernel*>(node.kernel);
    if (kernel == nullptr || IsReceive(node)) {
      return Obstacle(node, "its kernel does not say that it can be recorded");
    }
    const CapturableKernel::Traits traits = kernel->capture_traits();
    if (traits.obstacle != nullptr) return Obstacle(node, traits.obstacle);
    if (traits.enqueues) ++num_operations_;
    enqueues_[n] = traits.enqueues;
    updates_[n] = traits.num_updated > 0;
    return OkStatus();
  }

  Status SortReceive(int32_t n, const CompiledNode& node, const std::string& key) {
    const bool on_device = node.kernel->def().name() == "_Recv";
    if (!IsMemcpyable(node.output_types()[0])) {
      return Obstacle(node, "it receives what is not plain bytes");
    }
    const Place* const send = transfers_.FindSend(key);
    if (send != nullptr && send->part == index_) {
      if (graph_.nodes()[send->node].kernel->def().name() != "_HostSend" || !on_device) {
        return Obstacle(node, "the host has to see a value of the device");
      }
      plan_.local_send[n] = send->node;
      enqueues_[n] = true;
      ++waits_[n];
      return OkStatus();
    }
    if (waits_[n] > 0) return Obstacle(node, "it waits for another node");
    if (is_idle_[n]) {
      plan_.last.push_back({n, key, on_device});
      return OkStatus();
    }
    plan_.heads.push_back({n, key, on_device});
    enqueues_[n] = true;
    return OkStatus();
  }

  Status SortSend(int32_t n, const CompiledNode& node, const std::string& key) {
    const Place* const receive = transfers_.FindReceive(key);
    if (receive != nullptr && receive->part == index_) {
      local_receive_[n] = receive->node;
      return OkStatus();
    }
    if (node.num_edges > 0) return Obstacle(node, "a node waits for it");
    plan_.tails.push_back(n);
    return OkStatus();
  }

  Status Order() {
    std::vector<bool> is_end(waits_.size());
    for (const int32_t tail : plan_.tails) is_end[tail] = true;
    const std::vector<bool> only_sent = FindOnlySent(is_end);
    std::deque<int32_t> ready[3];  // what comes first, updates, what comes last
    const auto become_ready = [&](int32_t n) {
      if (!is_end[n] && !is_idle_[n]) ready[only_sent[n] ? 2 : updates_[n] ? 1 : 0].push_back(n);
    };
    const auto arrive = [&](int32_t n) {
      if (--waits_[n] == 0) become_ready(n);
    };
    const auto leave = [&](int32_t n) {
      const CompiledNode& node = graph_.nodes()[n];
      for (int32_t e = 0; e < node.num_edges; ++e) {
        arrive(graph_.edges()[node.edges_begin + e].dst);
      }
      if (const auto local = local_receive_.find(n); local != local_receive_.end()) {
        arrive(local->second);
      }
    };
    for (const CapturePlan::Head& head : plan_.heads) is_end[head.node] = true;
    for (std::size_t n = 0; n < waits_.size(); ++n) {
      if (waits_[n] == 0) become_ready(static_cast<int32_t>(n));
    }
    for (const CapturePlan::Head& head : plan_.heads) leave(head.node);
    while (true) {
      const auto from = std::find_if(std::begin(ready), std::end(ready),
                                     [](const auto& nodes) { return !nodes.empty(); });
      if (from == std::end(ready)) break;
      const int32_t n = from->front();
      from->pop_front();
      plan_.order.push_back(n);
      leave(n);
    }
    const std::size_t ordered = plan_.order.size() + plan_.heads.size() + plan_.tails.size() +
                                std::count(is_idle_.begin(), is_idle_.end(), true);
    if (ordered == waits_.size()) return OkStatus();
    return errors::FailedPrecondition("its nodes wait for each other");
  }

  // NoOps that nothing but such NoOps waits for, and what is received for them alone: the
  // partitioner puts an Identity between the two.
  void FindIdle() {
    is_idle_.assign(graph_.nodes().size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t n = is_idle_.size(); n-- > 0;) {
        const CompiledNode& node = graph_.nodes()[n];
        const bool may_be = (node.flags & (kNodeNoCompute | kNodeIdentity)) ||
                            (TransferOf(node) && IsReceive(node));
        if (is_idle_[n] || !may_be) continue;
        bool only = true;
        for (int32_t e = 0; e < node.num_edges; ++e) {
          only = only && is_idle_[graph_.edges()[node.edges_begin + e].dst];
        }
        is_idle_[n] = only;
        changed = changed || only;
      }
    }
  }

  // Nodes that enqueue nothing and whose values are only sent. They need not come before updates.
  std::vector<bool> FindOnlySent(const std::vector<bool>& is_tail) const {
    std::vector<bool> only_sent(waits_.size());
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t n = waits_.size(); n-- > 0;) {
        const CompiledNode& node = graph_.nodes()[n];
        if (only_sent[n] || enqueues_[n] || node.num_edges == 0) continue;
        bool only = true;
        for (int32_t e = 0; e < node.num_edges; ++e) {
          const int32_t dst = graph_.edges()[node.edges_begin + e].dst;
          only = only && (is_tail[dst] || only_sent[dst]);
        }
        only_sent[n] = only;
        changed = changed || only;
      }
    }
    return only_sent;
  }

  const std::span<const CompiledGraph* const> parts_;
  const std::size_t index_;
  const CompiledGraph& graph_;
  const Transfers transfers_;
  CapturePlan plan_;
  std::vector<int32_t> waits_;                      // by node: what must come before it
  std::vector<bool> updates_, enqueues_, is_idle_;  // by node
  absl::flat_hash_map<int32_t, int32_t> local_receive_;
  int num_operations_ = 0;
};

}  // namespace

StatusOr<CapturePlan> PlanCapture(std::span<const CompiledGraph* const> parts, std::size_t index) {
  return Planner(parts, index).Plan();
}

}  // namespace millrace
