// SPDX-License-Identifier: Apache-2.0
#include "placer/auto_place.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/status_macros.h"
#include "placer/colocation.h"
#include "placer/device_table.h"
#include "placer/free_time.h"
#include "placer/inspection.h"

namespace millrace {
namespace {

constexpr double kThreefold = 3;

double SecondsOn(const TaskGraph& tasks, int task, int candidate) {
  return tasks.seconds[task][candidate];
}

// The candidate that is this device; -1 if it is none.
int CandidateOf(const TaskGraph& tasks, int task, int device) {
  const auto& candidates = tasks.candidates[task];
  const auto found = std::find(candidates.begin(), candidates.end(), device);
  return found == candidates.end() ? -1 : static_cast<int>(found - candidates.begin());
}

}  // namespace

std::string_view PlannerName(Planner planner) {
  switch (planner) {
    case Planner::kEarliestFinish:
      return "earliest finish";
    case Planner::kHeft:
      return "HEFT";
    case Planner::kFewTransfers:
      return "earliest finish, few transfers";
    case Planner::kRoundRobin:
      return "round robin";
    case Planner::kOneDevice:
      return "one device";
  }
  return "";
}

Scheduler::Scheduler(const TaskGraph& tasks) : tasks_(tasks) {
  const int n = static_cast<int>(tasks.candidates.size());
  const auto index = [&](bool in, std::vector<int>* begin, std::vector<int>* edges) {
    begin->assign(n + 1, 0);
    edges->resize(tasks.edges.size());
    for (const TaskGraph::Edge& edge : tasks.edges) ++(*begin)[(in ? edge.dst : edge.src) + 1];
    std::partial_sum(begin->begin(), begin->end(), begin->begin());
    std::vector<int> next(begin->begin(), begin->end() - 1);
    for (int e = 0; e < static_cast<int>(tasks.edges.size()); ++e) {
      (*edges)[next[in ? tasks.edges[e].dst : tasks.edges[e].src]++] = e;
    }
  };
  index(true, &in_begin_, &in_edges_);
  index(false, &out_begin_, &out_edges_);
  rank_ = Ranks(1);
  SetDepths();
  order_ = Order(rank_);
}

// Ranks from the end, with mean costs; `apart` is the share of edges taken to be transfers.
std::vector<double> Scheduler::Ranks(double apart) const {
  const TaskGraph& tasks = tasks_;
  const int n = static_cast<int>(tasks.candidates.size());
  std::vector<double> rank(n, 0);
  std::vector<int> left(n), stack;
  for (int t = 0; t < n; ++t) {
    left[t] = out_begin_[t + 1] - out_begin_[t];
    if (left[t] == 0) stack.push_back(t);
  }
  while (!stack.empty()) {
    const int t = stack.back();
    stack.pop_back();
    double after = 0, mean = 0;
    for (int i = out_begin_[t]; i < out_begin_[t + 1]; ++i) {
      const TaskGraph::Edge& edge = tasks.edges[out_edges_[i]];
      after = std::max(after, rank[edge.dst] + apart * TransferSeconds(edge.bytes));
    }
    for (const double s : tasks.seconds[t]) mean += s;
    rank[t] = after + mean / static_cast<double>(tasks.seconds[t].size());
    for (int i = in_begin_[t]; i < in_begin_[t + 1]; ++i) {
      const int src = tasks.edges[in_edges_[i]].src;
      if (--left[src] == 0) stack.push_back(src);
    }
  }
  return rank;
}

void Scheduler::SetDepths() {
  const TaskGraph& tasks = tasks_;
  const int n = static_cast<int>(tasks.candidates.size());
  depth_.assign(n, 0);
  std::vector<int> waiting(n), ready;
  for (int t = 0; t < n; ++t) {
    waiting[t] = in_begin_[t + 1] - in_begin_[t];
    if (waiting[t] == 0) ready.push_back(t);
  }
  while (!ready.empty()) {
    const int t = ready.back();
    ready.pop_back();
    for (int i = out_begin_[t]; i < out_begin_[t + 1]; ++i) {
      const int dst = tasks.edges[out_edges_[i]].dst;
      depth_[dst] = std::max(depth_[dst], depth_[t] + 1);
      if (--waiting[dst] == 0) ready.push_back(dst);
    }
  }
}

// By falling rank; sources before destinations even where nothing costs anything.
std::vector<int> Scheduler::Order(const std::vector<double>& rank) const {
  struct Key {
    double rank;
    int depth, task;
  };
  std::vector<Key> keys(rank.size());
  for (int t = 0; t < static_cast<int>(rank.size()); ++t) keys[t] = {rank[t], depth_[t], t};
  std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    if (a.rank != b.rank) return a.rank > b.rank;
    return a.depth != b.depth ? a.depth < b.depth : a.task < b.task;
  });
  std::vector<int> order(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) order[i] = keys[i].task;
  return order;
}

std::vector<int> Scheduler::PlanByFinish(const std::vector<int>& order, bool in_gaps,
                                         double transfer_weight) const {
  const int n = static_cast<int>(order.size());
  std::vector<int> plan(n, 0);
  std::vector<int> device_of_group(n, -1);
  std::vector<double> finish(n, 0), arrival(tasks_.num_devices, 0);
  std::vector<FreeTime> free_times(in_gaps ? tasks_.num_devices : 0);
  std::vector<double> free_at(tasks_.num_devices, 0);
  for (const int t : order) {
    // When all inputs are at each device: transfers from elsewhere, at once from itself.
    std::fill(arrival.begin(), arrival.end(), 0);
    for (int i = in_begin_[t]; i < in_begin_[t + 1]; ++i) {
      const TaskGraph::Edge& edge = tasks_.edges[in_edges_[i]];
      const int from = tasks_.candidates[edge.src][plan[edge.src]];
      const double late = finish[edge.src] + transfer_weight * TransferSeconds(edge.bytes);
      for (int d = 0; d < tasks_.num_devices; ++d) {
        arrival[d] = std::max(arrival[d], d == from ? finish[edge.src] : late);
      }
    }
    int best = -1;
    double best_end = 0, best_begin = 0;
    const int fixed = device_of_group[tasks_.group[t]];
    for (int c = 0; c < static_cast<int>(tasks_.candidates[t].size()); ++c) {
      const int device = tasks_.candidates[t][c];
      if (fixed >= 0 && device != fixed) continue;
      const double seconds = SecondsOn(tasks_, t, c);
      const double begin = in_gaps ? free_times[device].Find(arrival[device], seconds)
                                   : std::max(arrival[device], free_at[device]);
      if (best < 0 || begin + seconds < best_end) {
        best = c;
        best_begin = begin;
        best_end = begin + seconds;
      }
    }
    best = std::max(best, 0);
    const int device = tasks_.candidates[t][best];
    plan[t] = best;
    device_of_group[tasks_.group[t]] = device;
    finish[t] = best_end;
    free_at[device] = std::max(free_at[device], best_end);
    if (in_gaps) free_times[device].Take(best_begin, best_end - best_begin);
  }
  return plan;
}

std::vector<int> Scheduler::PlanOneDevice() const {
  std::vector<int> best;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (int device = 0; device < tasks_.num_devices; ++device) {
    std::vector<int> plan(order_.size());
    for (int t = 0; t < static_cast<int>(plan.size()); ++t) {
      plan[t] = std::max(0, CandidateOf(tasks_, t, device));
    }
    // Without transfers nothing waits: a step is as long as its work.
    const bool alone = std::all_of(order_.begin(), order_.end(),
                                   [&](int t) { return tasks_.candidates[t][plan[t]] == device; });
    const double seconds = alone ? Load(plan) : Simulate(plan);
    if (seconds < best_seconds) {
      best_seconds = seconds;
      best = std::move(plan);
    }
  }
  return best;
}

std::vector<int> Scheduler::Plan(Planner planner) const {
  switch (planner) {
    case Planner::kEarliestFinish:
      return PlanByFinish(order_, true, 1);
    case Planner::kHeft:
      // As published, the mean over all pairs of devices, of which some are one device.
      return PlanByFinish(Order(Ranks(1 - 1.0 / std::max(1, tasks_.num_devices))), true, 1);
    case Planner::kFewTransfers:
      return PlanByFinish(order_, false, kThreefold);
    case Planner::kOneDevice:
      return PlanOneDevice();
    case Planner::kRoundRobin:
      break;
  }
  std::vector<int> plan(order_.size());
  std::vector<int> device_of_group(order_.size(), -1);
  int next = 0;
  for (int t = 0; t < static_cast<int>(plan.size()); ++t) {
    int& fixed = device_of_group[tasks_.group[t]];
    const int count = static_cast<int>(tasks_.candidates[t].size());
    plan[t] = fixed < 0 ? next++ % count : std::max(0, CandidateOf(tasks_, t, fixed));
    fixed = tasks_.candidates[t][plan[t]];
  }
  return plan;
}

double Scheduler::Load(const std::vector<int>& plan) const {
  std::vector<double> loads(tasks_.num_devices, 0);
  for (int t = 0; t < static_cast<int>(plan.size()); ++t) {
    loads[tasks_.candidates[t][plan[t]]] += SecondsOn(tasks_, t, plan[t]);
  }
  return loads.empty() ? 0 : *std::max_element(loads.begin(), loads.end());
}

double Scheduler::Simulate(const std::vector<int>& plan) const {
  // (time, task) of what becomes ready, and by device the ready tasks, longest way first.
  using Event = std::pair<double, int>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> arrivals;
  std::vector<std::priority_queue<std::pair<double, int>>> ready(tasks_.num_devices);
  std::vector<double> ready_at(order_.size(), 0), free_at(tasks_.num_devices, 0);
  std::vector<int> waiting(order_.size());
  for (int t = 0; t < static_cast<int>(order_.size()); ++t) {
    waiting[t] = in_begin_[t + 1] - in_begin_[t];
    if (waiting[t] == 0) arrivals.emplace(0, t);
  }
  double end = 0;
  const auto start = [&](int device, double now) {
    if (ready[device].empty() || free_at[device] > now) return;
    const int t = ready[device].top().second;
    ready[device].pop();
    const double done = now + SecondsOn(tasks_, t, plan[t]);
    free_at[device] = done;
    end = std::max(end, done);
    for (int i = out_begin_[t]; i < out_begin_[t + 1]; ++i) {
      const TaskGraph::Edge& edge = tasks_.edges[out_edges_[i]];
      const bool here = tasks_.candidates[edge.dst][plan[edge.dst]] == device;
      double& at = ready_at[edge.dst];
      at = std::max(at, here ? done : done + TransferSeconds(edge.bytes));
      if (--waiting[edge.dst] == 0) arrivals.emplace(at, edge.dst);
    }
    arrivals.emplace(done, -1 - device);  // the device is free
  };
  std::vector<int> touched;                                 // devices where something may start
  std::vector<int64_t> started_at(tasks_.num_devices, -1);  // a task that costs nothing lets go
  int64_t pass = 0;                                         // of what else is ready first
  while (!arrivals.empty()) {
    // Of all that are ready at the same time, the one with the longest way goes first.
    const double now = arrivals.top().first;
    touched.clear();
    while (!arrivals.empty() && arrivals.top().first == now) {
      const int what = arrivals.top().second;
      arrivals.pop();
      const int device = what < 0 ? -1 - what : tasks_.candidates[what][plan[what]];
      if (what >= 0) ready[device].emplace(rank_[what], what);
      touched.push_back(device);
    }
    for (const int device : touched) {
      if (!ready[device].empty() && free_at[device] <= now && started_at[device] != pass) {
        started_at[device] = pass;
        start(device, now);
      }
    }
    ++pass;
  }
  return end;
}

std::vector<int> Scheduler::Best(double* makespan, Planner* planner) const {
  std::vector<int> best;
  for (const Planner candidate : kAllPlanners) {
    std::vector<int> plan = Plan(candidate);
    // No step is shorter than the work of its busiest device.
    if (!best.empty() && Load(plan) >= *makespan) continue;
    const double seconds = Simulate(plan);
    if (!best.empty() && seconds >= *makespan) continue;
    best = std::move(plan);
    *makespan = seconds;
    *planner = candidate;
  }
  return best;
}

namespace {

bool IsLoopBack(const Node& node) {
  return node.type() == "NextIteration" || node.type() == "RefNextIteration";
}

// The tasks of a graph, and the memory behind them.
struct GraphTasks {
  TaskGraph tasks;
  std::vector<const Node*> nodes;
  std::vector<std::unique_ptr<std::vector<double>>> owned_seconds;
};

Status MakeTasks(const DataflowGraph& graph, const PlacerInput& input, const CostModel& costs,
                 DeviceTable* table, Colocation* groups, GraphTasks* made) {
  TaskGraph& tasks = made->tasks;
  tasks.num_devices = table->num_devices();
  tasks.latency_seconds = costs.latency_seconds;
  tasks.bytes_per_second = costs.bytes_per_second;
  std::vector<int> task_of(graph.num_node_ids(), -1);
  absl::flat_hash_map<int, int> group_numbers;
  for (const Node* node : graph.OpNodes()) {
    // An error of the group is found again, and told, when the nodes are placed.
    MR_ASSIGN_OR_RETURN(const CandidateSet* const set, groups->Candidates(*node));
    task_of[node->id()] = static_cast<int>(made->nodes.size());
    made->nodes.push_back(node);
    tasks.candidates.emplace_back(set->devices);
    auto seconds = std::make_unique<std::vector<double>>();
    std::vector<double> by_type(table->types().size(), -1);
    for (const int device : set->devices) {
      double& known = by_type[table->device_type(device)];
      if (known < 0) {
        known = costs.compute_seconds(*node, table->types()[table->device_type(device)]);
      }
      seconds->push_back(known);
    }
    tasks.seconds.emplace_back(*seconds);
    made->owned_seconds.push_back(std::move(seconds));
    const auto [number, added] =
        group_numbers.try_emplace(groups->GroupOf(*node), static_cast<int>(group_numbers.size()));
    tasks.group.push_back(number->second);
  }
  for (const Node* node : made->nodes) {
    for (const Edge* edge : node->out_edges()) {
      if (!edge->dst->IsOp() || IsLoopBack(*node)) continue;
      const double bytes = edge->IsControl() ? 0 : costs.output_bytes(*node, edge->src_output);
      tasks.edges.push_back({task_of[node->id()], task_of[edge->dst->id()], bytes});
    }
  }
  return OkStatus();
}

}  // namespace

Status AutoPlace(DataflowGraph* graph, const PlacerInput& input, const CostModel& costs,
                 PlacementLog* log, AutoPlacement* result) {
  absl::flat_hash_map<const Node*, std::string> wanted;
  {
    DeviceTable table(input, nullptr);
    Inspection inspection(input, &table);
    Colocation groups(*graph, input, &table, nullptr, &inspection);
    GraphTasks made;
    Status status = groups.Build();
    if (status.ok()) status = MakeTasks(*graph, input, costs, &table, &groups, &made);
    if (!status.ok()) return Place(graph, input, log);  // which explains the error
    const Scheduler scheduler(made.tasks);
    Planner planner = Planner::kOneDevice;
    const std::vector<int> plan = scheduler.Best(&result->makespan_seconds, &planner);
    result->method = PlannerName(planner);
    for (std::size_t t = 0; t < plan.size(); ++t) {
      wanted[made.nodes[t]] = table.device_name(made.tasks.candidates[t][plan[t]]);
    }
  }
  PlacerInput with_choice = input;
  with_choice.choose = [&wanted](const Node& node) -> std::string_view {
    const auto found = wanted.find(&node);
    return found == wanted.end() ? std::string_view() : std::string_view(found->second);
  };
  return Place(graph, with_choice, log);
}

}  // namespace millrace
