// SPDX-License-Identifier: Apache-2.0
// Plans of the automatic placer beside simpler ones, on layered graphs: simulated seconds of a
// step, and what the planning costs.
//
//   auto_place_bench [EDGES]     edges of each graph, 20000 by default
//
// The suite: few and many parallel chains, thin and thick layers, cheap and dear transfers, equal
// and unequal devices. Prints a line for each graph; the exit code is 1 if a simpler plan was
// faster, or if planning cost more than 3 us an edge.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "placer/auto_place.h"

namespace millrace {
namespace {

constexpr double kMaxMicrosecondsPerEdge = 3;

struct Shape {
  int width, fan_in, devices;
  double transfer_share;  // seconds of a transfer, as a multiple of those of a task
  bool unequal;           // devices
  double grouped;         // share of tasks that are tied to the one before
};

struct Made {
  TaskGraph tasks;
  std::vector<int> devices;
  std::vector<std::vector<double>> seconds;
};

void Make(const Shape& shape, int num_edges, unsigned seed, Made* made) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> cost(0.2, 1.8), chance(0, 1);
  TaskGraph& tasks = made->tasks;
  const int n = std::max(shape.width * 2, num_edges / shape.fan_in);
  tasks.num_devices = shape.devices;
  tasks.latency_seconds = 1e-5;
  tasks.bytes_per_second = 1e9;
  for (int d = 0; d < shape.devices; ++d) made->devices.push_back(d);
  made->seconds.resize(n);
  for (int t = 0; t < n; ++t) {
    const double base = cost(random) * 1e-3;
    for (int d = 0; d < shape.devices; ++d) {
      made->seconds[t].push_back(shape.unequal ? base * (1 + d % 3) : base);
    }
    const bool tied = t > 0 && chance(random) < shape.grouped;
    tasks.group.push_back(tied ? tasks.group.back() : t);
    const int layer = t / shape.width;
    for (int i = 0; layer > 0 && i < shape.fan_in; ++i) {
      const int src = (layer - 1) * shape.width +
                      static_cast<int>(random() % static_cast<unsigned>(shape.width));
      tasks.edges.push_back({src, t, shape.transfer_share * cost(random) * 1e6});
    }
  }
  for (int t = 0; t < n; ++t) {
    tasks.candidates.emplace_back(made->devices);
    tasks.seconds.emplace_back(made->seconds[t]);
  }
}

// HEFT as published (Topcuoglu, Hariri and Wu, 2002): tasks by upward rank with mean costs, each
// in the first gap, of all gaps, where it ends earliest. Written apart from the placer. A tied task
// goes where the first of its group went.
std::vector<int> Heft(const TaskGraph& tasks) {
  const int n = static_cast<int>(tasks.seconds.size());
  std::vector<std::vector<const TaskGraph::Edge*>> in(n), out(n);
  for (const TaskGraph::Edge& edge : tasks.edges) {
    in[edge.dst].push_back(&edge);
    out[edge.src].push_back(&edge);
  }
  const auto transfer = [&](double bytes) {
    return tasks.latency_seconds + bytes / tasks.bytes_per_second;
  };
  const double apart = 1 - 1.0 / tasks.num_devices;  // the mean over pairs of devices
  std::vector<double> rank(n, 0);
  for (int t = n; t-- > 0;) {  // edges go to higher numbers
    double after = 0, mean = 0;
    for (const auto* edge : out[t]) {
      after = std::max(after, rank[edge->dst] + apart * transfer(edge->bytes));
    }
    for (const double s : tasks.seconds[t]) mean += s / static_cast<double>(tasks.num_devices);
    rank[t] = after + mean;
  }
  std::vector<int> order(n), plan(n), device_of_group(n, -1);
  for (int t = 0; t < n; ++t) order[t] = t;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return rank[a] > rank[b]; });
  std::vector<std::map<double, double>> busy(tasks.num_devices);  // begin, end
  std::vector<double> finish(n, 0);
  for (const int t : order) {
    double best_begin = 0, best_end = std::numeric_limits<double>::infinity();
    for (int d = 0; d < tasks.num_devices; ++d) {
      if (device_of_group[tasks.group[t]] >= 0 && device_of_group[tasks.group[t]] != d) continue;
      double ready = 0;
      for (const auto* edge : in[t]) {
        const double moved = plan[edge->src] == d ? 0 : transfer(edge->bytes);
        ready = std::max(ready, finish[edge->src] + moved);
      }
      double begin = ready;
      auto slot = busy[d].upper_bound(ready);
      if (slot != busy[d].begin()) begin = std::max(begin, std::prev(slot)->second);
      for (; slot != busy[d].end() && begin + tasks.seconds[t][d] > slot->first; ++slot) {
        begin = std::max(begin, slot->second);
      }
      if (begin + tasks.seconds[t][d] < best_end) {
        best_begin = begin;
        best_end = begin + tasks.seconds[t][d];
        plan[t] = d;
      }
    }
    device_of_group[tasks.group[t]] = plan[t];
    busy[plan[t]][best_begin] = best_end;
    finish[t] = best_end;
  }
  return plan;
}

int Main(int argc, char** argv) {
  const int num_edges = argc > 1 ? std::atoi(argv[1]) : 20'000;
  int failures = 0;
  std::printf("width fan-in devices transfer unequal tied |");
  for (const Planner planner : kAllPlanners) std::printf(" %s |", PlannerName(planner).data());
  std::printf(" HEFT | auto | us/edge\n");
  unsigned seed = 0;
  for (const int width : {4, 10, 40}) {
    for (const int fan_in : {1, 2, 5}) {
      for (const double transfer : {0.1, 1.0, 5.0}) {
        for (const bool unequal : {false, true}) {
          const Shape shape{width, fan_in, 4, transfer, unequal, seed % 4 == 0 ? 0.05 : 0.0};
          Made made;
          Make(shape, num_edges, ++seed, &made);
          const auto start = std::chrono::steady_clock::now();
          const Scheduler scheduler(made.tasks);
          double best = 0;
          Planner planner = Planner::kOneDevice;
          scheduler.Best(&best, &planner);
          const double us =
              std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
                  .count() /
              static_cast<double>(made.tasks.edges.size());
          std::printf("%5d %6d %7d %8.1f %7d %4.2f |", width, fan_in, shape.devices, transfer,
                      unequal, shape.grouped);
          for (const Planner other : kAllPlanners) {
            const double seconds = scheduler.Simulate(scheduler.Plan(other));
            std::printf(" %.4f |", seconds);
            failures += best > seconds;
          }
          const double heft = scheduler.Simulate(Heft(made.tasks));
          failures += best > heft;
          std::printf(" %.4f | %.4f | %.2f\n", heft, best, us);
          failures += us > kMaxMicrosecondsPerEdge;
        }
      }
    }
  }
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
