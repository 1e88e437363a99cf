// SPDX-License-Identifier: Apache-2.0
// What a step sends and keeps, as a report for people and for programs.
#ifndef PLANNER_PLAN_REPORT_H_
#define PLANNER_PLAN_REPORT_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "graph/dataflow_graph.h"
#include "planner/memory.h"
#include "planner/prepared_run.h"
#include "planner/traffic.h"
#include "planner/what_if.h"

namespace millrace {

// Of one parameter server in one step of one worker.
struct PsLoad {
  TaskLoad variables;
  ByteRange sent, received;
};

// How evenly something is spread: the largest and its ratio to the mean (1: evenly; 0: nothing).
struct Spread {
  int64_t most = 0;
  double ratio = 0;
};

struct WhatIf {
  int num_ps = 0, num_workers = 0;
  PsSpread spread = PsSpread::kRoundRobin;
  Spread variables, traffic;  // bytes of a ps; sent and received in a step of all workers
  ByteRange all;              // bytes of a step of all workers between tasks
};

// The nodes of the run on one accelerator (planner/captures.h).
struct CaptureForecast {
  std::string device;
  int nodes = 0;         // after rewrites, with sends and receives
  std::string obstacle;  // why its steps are never recorded; "": they may be
};

struct PlanReport {
  int num_nodes = 0, num_nodes_of_graph = 0;  // of the run; of the whole graph
  std::vector<TransferSum> links;             // between tasks, and with the client
  std::vector<Transfer> not_exact;            // of these links
  std::vector<TaskMemory> memory;
  int num_ps = 0;
  std::vector<PsLoad> ps;
  Spread ps_variables, ps_traffic;        // known bytes only
  std::vector<CaptureForecast> captures;  // not known to MakePlanReport
  std::vector<std::string> warnings;
  std::vector<WhatIf> what_if;
};

// Warns of a ps with more than twice the mean, of a variable of more than a megabyte that
// travels though only rows of it are read, of functions, whose insides are not looked at, and of
// variables whose shape an assignment may change. `tasks` are those of the cluster: one that got
// no node counts when loads are compared.
PlanReport MakePlanReport(const DataflowGraph& placed, const PlannedRun& run,
                          const std::set<std::string>& tasks = {});
// One worker's report, times the number of workers that each run the same.
WhatIf MakeWhatIf(const PlanReport& report, int num_ps, int num_workers, PsSpread spread);

// The same text for the same report.
std::string ReportToText(const PlanReport& report);
std::string ReportToJson(const PlanReport& report);

}  // namespace millrace

#endif  // PLANNER_PLAN_REPORT_H_
