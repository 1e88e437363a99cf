// SPDX-License-Identifier: Apache-2.0
// What a step was as long as, and whose work that was.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "distributed_runtime/pages/cluster_trace.h"
#include "distributed_runtime/pages/trace_nodes.h"
#include "executor/stats/step_trace.h"

namespace millrace {
namespace {

// The time in which at least one node of each task worked.
std::map<std::string, int64_t> WorkOf(const pb::TracedStep& step) {
  std::map<std::string, std::vector<std::pair<int64_t, int64_t>>> spans;
  for (const pb::TracedPart& part : step.part()) {
    auto& of_task = spans[part.task()];
    const auto calls = CallsOf(part);
    ForEachNode(part, [&](const pb::DeviceStepStats&, const pb::NodeExecStats& node) {
      if (IsWait(OpOf(node)) || calls.contains(&node)) return;
      of_task.emplace_back(StartOf(node), EndOf(node));
    });
  }
  std::map<std::string, int64_t> work;
  for (auto& [task, of_task] : spans) {
    std::sort(of_task.begin(), of_task.end());
    int64_t& sum = work[task];
    int64_t until = 0;
    for (const auto& [begin, end] : of_task) {
      sum += std::max<int64_t>(end - std::max(begin, until), 0);
      until = std::max(until, end);
    }
  }
  return work;
}

// What of the critical path was each task's own: its nodes, but for those that waited, and the time
// between two of them, in which a task that stands still does nothing. On the way from one task to
// the next it is nobody's.
std::map<std::string, int64_t> OwnOnPath(const pb::TracedStep& step,
                                         const std::vector<CriticalNode>& path) {
  std::map<std::string, int64_t> own;
  const pb::TracedPart* last_answer = nullptr;
  std::map<std::string_view, int64_t> called;
  for (const pb::TracedPart& part : step.part()) {
    const auto [it, is_new] = called.try_emplace(part.task(), part.sent_nanos());
    if (!is_new) it->second = std::min(it->second, part.sent_nanos());
    if (last_answer == nullptr || part.answered_nanos() > last_answer->answered_nanos()) {
      last_answer = &part;
    }
  }
  for (std::size_t i = 0; i < path.size(); ++i) {
    const auto& [task, node] = path[i];
    int64_t& sum = own[task];
    if (!IsWait(OpOf(*node))) sum += EndOf(*node) - StartOf(*node);
    const bool goes_on = i > 0 && path[i - 1].task == task;
    if (i == 0) {
      sum += std::max<int64_t>(StartOf(*node) - called.at(task), 0);
    } else if (goes_on) {
      sum += std::max<int64_t>(StartOf(*node) - EndOf(*path[i - 1].node), 0);
    }
  }
  if (!path.empty() && last_answer->task() == path.back().task) {
    own[path.back().task] +=
        std::max<int64_t>(last_answer->answered_nanos() - EndOf(*path.back().node), 0);
  }
  return own;
}

}  // namespace

std::string Straggler(const pb::TracedStep& step, int64_t* cost_nanos) {
  *cost_nanos = 0;
  const std::map<std::string, int64_t> own = OwnOnPath(step, CriticalPath(step));
  std::map<std::string, int64_t> all = WorkOf(step);
  for (const auto& [task, nanos] : own) all[task] = std::max(all[task], nanos);
  if (all.size() < 2) return "";
  std::string straggler;
  for (const auto& [task, nanos] : own) {
    std::vector<int64_t> others;
    for (const auto& [other, its] : all) {
      if (other != task) others.push_back(its);
    }
    // Of an even number the larger one of the middle: nobody is said to have cost more than he did.
    const auto median = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
    std::nth_element(others.begin(), median, others.end());
    if (nanos - *median <= *cost_nanos) continue;
    *cost_nanos = nanos - *median;
    straggler = task;
  }
  return straggler;
}

std::vector<CriticalNode> CriticalPath(const pb::TracedStep& step) {
  struct Place {
    const pb::NodeExecStats* node;
    const std::string* task;
    const std::string* device;
  };
  std::vector<Place> places;
  for (const pb::TracedPart& part : step.part()) {
    const auto calls = CallsOf(part);
    ForEachNode(part, [&](const pb::DeviceStepStats& device, const pb::NodeExecStats& node) {
      if (!calls.contains(&node)) places.push_back({&node, &part.task(), &device.device()});
    });
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return EndOf(*a.node) > EndOf(*b.node); });
  std::map<const pb::NodeExecStats*, std::size_t> index;
  for (std::size_t i = 0; i < places.size(); ++i) index[places[i].node] = i;
  std::map<const pb::NodeExecStats*, const pb::NodeExecStats*> senders;
  for (const TracedTransfer& transfer : FindTransfers(step)) {
    senders[transfer.receive] = transfer.send;
  }
  std::vector<CriticalNode> path;
  std::vector<bool> seen(places.size());
  for (std::size_t at = 0; at < places.size() && !seen[at];) {
    const Place& place = places[at];
    seen[at] = true;
    path.push_back({*place.task, place.node});
    const auto sender = senders.find(place.node);
    if (sender != senders.end()) {
      at = index.at(sender->second);  // which may end after the value has come
      continue;
    }
    const auto is_before = [&](const Place& other) {
      return *other.device == *place.device && EndOf(*other.node) <= StartOf(*place.node);
    };
    ++at;
    while (at < places.size() && !is_before(places[at])) ++at;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace millrace
