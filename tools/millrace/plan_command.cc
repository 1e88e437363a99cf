// SPDX-License-Identifier: Apache-2.0
// `millrace plan`: what a step costs before it has been run.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "base/errors.h"
#include "base/options/engine_options.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "placer/placer.h"
#include "planner/captures.h"
#include "planner/plan_report.h"
#include "planner/what_if.h"
#include "runtime/registries.h"
#include "tools/millrace/graph_commands.h"
#include "tools/millrace/offline.h"

namespace millrace {
namespace {

struct Flags : ClusterFlags, RunFlags {
  std::string graph;
  std::vector<int> ps, workers;
  bool as_json = false;
};

StatusOr<PlanReport> Report(const Flags& flags, const PlacedGraph& placed) {
  MR_ASSIGN_OR_RETURN(const RunRequest request, ToRunRequest(flags, placed.client_device));
  MR_ASSIGN_OR_RETURN(const PlannedRun run, PrepareRun(*placed.graph, request));
  std::set<std::string> tasks;
  for (const PlacerDevice& device : placed.devices) tasks.insert(TaskPartOf(device.name));
  MR_ASSIGN_OR_RETURN(const EngineOptions engine, EngineOptions::FromEnvironment());
  PlanReport report = MakePlanReport(*placed.graph, run, tasks);
  report.captures = ForecastCaptures(run, AllOps(), AllKernels(), engine);
  return report;
}

// The cluster of `placed`, but with so many parameter servers.
StatusOr<PlacerInput> WithPs(int num_ps, const Flags& flags, const PlacedGraph& placed) {
  MR_ASSIGN_OR_RETURN(PlacerInput input, MakePlacerInput(flags));
  input.devices = placed.devices;
  std::erase_if(input.devices,
                [](const PlacerDevice& device) { return device.name.starts_with("/job:ps/"); });
  for (int task = 0; task < num_ps; ++task) {
    for (int cpu = 0; cpu < flags.cpus; ++cpu) {
      input.devices.push_back(
          {StrCat(MakeTaskName("ps", task), "/device:CPU:", cpu), "CPU", false});
    }
  }
  return input;
}

// The same run with other numbers of tasks, one row for each number and way to spread.
StatusOr<std::vector<WhatIf>> Compare(const Flags& flags, const PlacedGraph& placed) {
  std::vector<WhatIf> rows;
  for (const int num_ps : flags.ps) {
    for (const PsSpread spread : {PsSpread::kRoundRobin, PsSpread::kGreedyBytes}) {
      PlacedGraph other;
      other.client_device = placed.client_device;
      other.graph = placed.graph->Clone();
      SpreadOverPs(num_ps, spread, other.graph.get());
      MR_ASSIGN_OR_RETURN(const PlacerInput input, WithPs(num_ps, flags, placed));
      MR_RETURN_IF_ERROR(Place(other.graph.get(), input, nullptr));
      other.devices = input.devices;
      MR_ASSIGN_OR_RETURN(const PlanReport report, Report(flags, other));
      for (const int num_workers : flags.workers) {
        rows.push_back(MakeWhatIf(report, num_ps, num_workers, spread));
      }
    }
  }
  return rows;
}

int Run(Flags flags) {
  for (const auto* counts : {&flags.ps, &flags.workers}) {
    for (const int count : *counts) {
      if (count >= 1 && count <= 10'000) continue;
      return Complain("plan", errors::InvalidArgument(count, " is no number of tasks"),
                      kWrongInput);
    }
  }
  int code = kDone;
  const StatusOr<PlacedGraph> placed = LoadPlaced(flags.graph, flags, /*chains=*/false, &code);
  if (!placed.ok()) return Complain("plan", placed.status(), code);
  const StatusOr<RunRequest> request = ToRunRequest(flags, placed->client_device);
  if (!request.ok()) return Complain("plan", request.status(), kWrongInput);
  StatusOr<PlanReport> report = Report(flags, *placed);
  if (!report.ok()) return Complain("plan", report.status(), kImpossible);
  const bool compares = !flags.ps.empty() || !flags.workers.empty();
  if (flags.ps.empty()) flags.ps = {std::max(1, report->num_ps)};
  if (flags.workers.empty()) flags.workers = {1};
  if (compares) {
    StatusOr<std::vector<WhatIf>> rows = Compare(flags, *placed);
    if (!rows.ok()) return Complain("plan", rows.status(), kImpossible);
    report->what_if = *std::move(rows);
  }
  return Write("plan", "", flags.as_json ? ReportToJson(*report) : ReportToText(*report));
}

}  // namespace

void AddPlanCommand(CLI::App* app, std::function<int()>* chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const command = AddCommand(
      app, "plan", "say what a step sends and keeps, before it is run",
      [flags] { return Run(*flags); }, chosen);
  AddGraphArgument(command, "graph", &flags->graph);
  AddClusterFlags(command, flags.get());
  AddRunFlags(command, flags.get());
  command
      ->add_option("--ps", flags->ps,
                   "what if there were so many parameter servers? (several: one table)")
      ->delimiter(',');
  command
      ->add_option("--workers", flags->workers,
                   "and so many workers, each with a session of its own that runs this?")
      ->delimiter(',');
  command->add_flag("--json", flags->as_json, "for programs");
}

}  // namespace millrace
