// SPDX-License-Identifier: Apache-2.0
// Chooses devices by what it expects a step to cost, where the rules of TensorFlow leave a choice.
#ifndef PLACER_AUTO_PLACE_H_
#define PLACER_AUTO_PLACE_H_

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "placer/placer.h"

namespace millrace {

// What things cost, in seconds and bytes; measured or guessed. Called once for each node, type
// and output.
struct CostModel {
  std::function<double(const Node& node, std::string_view device_type)> compute_seconds;
  std::function<double(const Node& node, int output)> output_bytes;
  double latency_seconds = 50e-6;  // of one value between two devices
  double bytes_per_second = 1e9;   // of the same
};

struct AutoPlacement {
  double makespan_seconds = 0;  // of one step, as simulated
  std::string method;           // the plan that won, in words
};

// Places like Place: the same candidates for each group, the same errors, the same record. Where
// there are several, the device comes from list scheduling: nodes in order of the longest way to
// the end of the step, each to the device where it ends first. Several such plans, each node in
// turn, and everything on one device are simulated (devices compute one node at a time, links
// carry any number of values at a time, a loop runs once); the fastest is taken. O(E log V).
Status AutoPlace(DataflowGraph* graph, const PlacerInput& input, const CostModel& costs,
                 PlacementLog* log, AutoPlacement* result);

// The scheduler by itself, for any graph of tasks: used by AutoPlace, and to compare.
struct TaskGraph {
  struct Edge {
    int src, dst;
    double bytes;
  };
  // By task: the devices it can go to, best first, and its seconds on each of these; tasks of one
  // group share a device. Groups are numbered from 0.
  std::vector<std::span<const int>> candidates;
  std::vector<std::span<const double>> seconds;
  std::vector<int> group;
  std::vector<Edge> edges;  // without circles
  int num_devices = 0;
  double latency_seconds = 0, bytes_per_second = 1;
};

enum class Planner {
  kEarliestFinish,  // list scheduling, also into gaps before what was scheduled already
  kHeft,            // the same, as published (Topcuoglu, Hariri and Wu, 2002)
  kFewTransfers,    // without gaps, and with transfers counted threefold
  kRoundRobin,
  kOneDevice,  // the best of them
};
inline constexpr Planner kAllPlanners[] = {Planner::kEarliestFinish, Planner::kHeft,
                                           Planner::kFewTransfers, Planner::kRoundRobin,
                                           Planner::kOneDevice};
std::string_view PlannerName(Planner planner);

class Scheduler {
 public:
  // `tasks` must outlive this object.
  explicit Scheduler(const TaskGraph& tasks);

  // Index into its candidates, by task.
  std::vector<int> Plan(Planner planner) const;
  // Seconds until the last task ends, when every device always takes the ready task with the
  // longest way to the end.
  double Simulate(const std::vector<int>& plan) const;
  // Seconds of work of the busiest device: a step takes at least as long.
  double Load(const std::vector<int>& plan) const;
  // The fastest of all planners' plans.
  std::vector<int> Best(double* makespan, Planner* planner) const;

 private:
  std::vector<int> PlanByFinish(const std::vector<int>& order, bool in_gaps,
                                double transfer_weight) const;
  std::vector<double> Ranks(double apart) const;
  std::vector<int> Order(const std::vector<double>& rank) const;
  void SetDepths();
  std::vector<int> PlanOneDevice() const;
  double TransferSeconds(double bytes) const {
    return tasks_.latency_seconds + bytes / tasks_.bytes_per_second;
  }

  const TaskGraph& tasks_;
  std::vector<int> in_begin_, in_edges_, out_begin_, out_edges_;  // by task: edges
  std::vector<double> rank_;                                      // longest way to the end
  std::vector<int> depth_;                                        // longest way from the start
  std::vector<int> order_;                                        // by falling rank
};

}  // namespace millrace

#endif  // PLACER_AUTO_PLACE_H_
