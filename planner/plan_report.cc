// SPDX-License-Identifier: Apache-2.0
#include "planner/plan_report.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/strings.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kLargeVariable = 1 << 20;
constexpr double kHotSpot = 2;
constexpr std::size_t kGap = 2;  // between columns

bool IsPs(const std::string& task) { return task.starts_with("/job:ps/"); }

Spread SpreadOf(const std::vector<int64_t>& loads) {
  Spread spread;
  int64_t sum = 0;
  for (const int64_t load : loads) {
    spread.most = std::max(spread.most, load);
    sum += load;
  }
  if (sum > 0) {
    spread.ratio = static_cast<double>(spread.most) * static_cast<double>(loads.size()) /
                   static_cast<double>(sum);
  }
  return spread;
}

// "/job:ps/replica:0/task:1" is "ps:1".
std::string Short(const std::string& task) {
  constexpr std::string_view kReplica = "/replica:0/task:";
  const std::size_t at = task.find(kReplica);
  if (!task.starts_with("/job:") || at == std::string::npos) return task;
  return StrCat(task.substr(5, at - 5), ":", task.substr(at + kReplica.size()));
}

std::string Decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", value);
  return text;
}

void Warn(const DataflowGraph& placed, const PlannedRun& run,
          const std::vector<Transfer>& transfers, PlanReport* report) {
  for (const auto& [what, spread] :
       {std::pair("variables", report->ps_variables), std::pair("traffic", report->ps_traffic)}) {
    if (spread.ratio > kHotSpot) {
      report->warnings.push_back(StrCat("hot spot: one ps has ", Decimal(spread.ratio),
                                        " times the mean of the ", what, ", ", spread.most,
                                        " bytes"));
    }
  }
  for (const Transfer& t : transfers) {
    if (t.fetched_by_gather.empty() || t.each <= kLargeVariable) continue;
    report->warnings.push_back(StrCat(t.tensor, " (", t.each, " bytes) is sent from ",
                                      Short(TaskPartOf(t.from)), " to ", Short(TaskPartOf(t.to)),
                                      " for ", t.fetched_by_gather,
                                      ", which reads only rows of it: place that with it"));
  }
  std::set<std::string> calls, loose;
  for (const Node* node : run.graph->OpNodes()) {
    for (const auto& [name, value] : node->attrs()) {
      if (value.get_if<std::shared_ptr<const FunctionName>>() != nullptr) {
        calls.insert(node->name());
      }
    }
  }
  if (!calls.empty()) {
    report->warnings.push_back(StrCat("what functions do inside is not counted: ", calls.size(),
                                      " calls, the first is ", *calls.begin()));
  }
  for (const Node* node : placed.OpNodes()) {
    if (node->type() == "Assign" && !node->attrs().GetOr<bool>("validate_shape", true)) {
      loose.insert(node->name());
    }
  }
  if (!loose.empty()) {
    report->warnings.push_back(StrCat(loose.size(), " assignments may change the shape of their ",
                                      "variable (validate_shape=false), the first is ",
                                      *loose.begin(), ": numbers hold for the declared shapes"));
  }
}

std::string SpreadName(PsSpread spread) {
  return spread == PsSpread::kRoundRobin ? "round robin" : "greedy bytes";
}

// Columns that are as wide as they need to be.
std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = "  ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + kGap, ' ');
    }
    StrAppend(&text, line, "\n");
  }
  return text;
}

Json ToJson(const ByteRange& range) {
  Json json = {{"least", range.least}};
  json["most"] = range.most == kUnbounded ? Json() : Json(range.most);
  return json;
}

Json ToJson(const Spread& spread) {
  return {{"most", spread.most}, {"max_over_mean", std::stod(Decimal(spread.ratio))}};
}

}  // namespace

PlanReport MakePlanReport(const DataflowGraph& placed, const PlannedRun& run,
                          const std::set<std::string>& tasks) {
  PlanReport report;
  report.num_nodes_of_graph = static_cast<int>(placed.OpNodes().size());
  report.num_nodes = static_cast<int>(run.graph->OpNodes().size());
  const std::vector<Transfer> transfers = PredictTransfers(run);
  report.links = SumTransfers(transfers, /*by_task=*/true);
  for (const Transfer& transfer : transfers) {
    if (!transfer.bytes.IsExact() && TaskPartOf(transfer.from) != TaskPartOf(transfer.to)) {
      report.not_exact.push_back(transfer);
    }
  }
  report.memory = PredictMemory(placed, run);
  for (const std::string& task : tasks) {
    const auto at =
        std::find_if(report.memory.begin(), report.memory.end(),
                     [&](const TaskMemory& memory) { return memory.variables.task >= task; });
    if (at != report.memory.end() && at->variables.task == task) continue;
    report.memory.insert(at, TaskMemory())->variables.task = task;
  }
  std::vector<int64_t> variables, traffic;
  for (const TaskMemory& memory : report.memory) {
    if (!IsPs(memory.variables.task)) continue;
    PsLoad& load = report.ps.emplace_back();
    load.variables = memory.variables;
    for (const TransferSum& link : report.links) {
      if (link.from == load.variables.task) load.sent += link.bytes;
      if (link.to == load.variables.task) load.received += link.bytes;
    }
    variables.push_back(load.variables.bytes.least);
    traffic.push_back(load.sent.least + load.received.least);
  }
  report.num_ps = static_cast<int>(report.ps.size());
  report.ps_variables = SpreadOf(variables);
  report.ps_traffic = SpreadOf(traffic);
  Warn(placed, run, transfers, &report);
  return report;
}

WhatIf MakeWhatIf(const PlanReport& report, int num_ps, int num_workers, PsSpread spread) {
  WhatIf row;
  row.num_ps = num_ps;
  row.num_workers = num_workers;
  row.spread = spread;
  // A ps without a node counts: it was meant to have some.
  std::vector<int64_t> variables(num_ps), traffic(num_ps);
  for (std::size_t i = 0; i < report.ps.size() && i < variables.size(); ++i) {
    variables[i] = report.ps[i].variables.bytes.least;
    traffic[i] = (report.ps[i].sent.least + report.ps[i].received.least) * num_workers;
  }
  row.variables = SpreadOf(variables);
  row.traffic = SpreadOf(traffic);
  for (const TransferSum& link : report.links) {
    if (link.from == kClient || link.to == kClient) continue;
    ByteRange all = link.bytes;
    all.least *= num_workers;
    if (all.most != kUnbounded) all.most *= num_workers;
    row.all += all;
  }
  return row;
}

std::string ReportToText(const PlanReport& report) {
  std::string text = StrCat("a step runs ", report.num_nodes, " nodes; the graph has ",
                            report.num_nodes_of_graph, "\n\nlinks, in each step:\n");
  std::vector<std::vector<std::string>> rows = {{"from", "to", "tensors", "bytes"}};
  for (const TransferSum& link : report.links) {
    rows.push_back({Short(link.from), Short(link.to), StrCat(link.tensors),
                    StrCat(ToText(link.bytes),
                           link.not_exact > 0 ? StrCat(" (", link.not_exact, " not exact)") : "")});
  }
  text += Table(rows);
  if (!report.not_exact.empty()) {
    text += "\nnot exact:\n";
    rows = {{"tensor", "from", "to", "bytes", "each", "because"}};
    for (const Transfer& t : report.not_exact) {
      rows.push_back({t.tensor, Short(TaskPartOf(t.from)), Short(TaskPartOf(t.to)), ToText(t.bytes),
                      t.each < 0 ? "?" : StrCat(t.each), t.why});
    }
    text += Table(rows);
  }
  text += "\nmemory of tasks, in bytes:\n";
  rows = {{"task", "variables", "step, in order", "step, bounds"}};
  for (const TaskMemory& m : report.memory) {
    rows.push_back(
        {Short(m.variables.task), ToText(m.variables.bytes),
         StrCat(m.in_order,
                m.unknown_values > 0 ? StrCat(" and ", m.unknown_values, " of unknown size") : ""),
         ToText(m.step)});
  }
  text += Table(rows);
  if (!report.ps.empty()) {
    text += "\nparameter servers:\n";
    rows = {{"task", "variables", "bytes", "sends", "receives"}};
    for (const PsLoad& ps : report.ps) {
      rows.push_back({Short(ps.variables.task), StrCat(ps.variables.variables),
                      ToText(ps.variables.bytes), ToText(ps.sent), ToText(ps.received)});
    }
    text += Table(rows);
    StrAppend(&text, "  max/mean: variables ", Decimal(report.ps_variables.ratio), ", traffic ",
              Decimal(report.ps_traffic.ratio), "\n");
  }
  if (!report.captures.empty()) {
    text += "\nsteps of accelerators:\n";
    rows = {{"device", "nodes", ""}};
    for (const CaptureForecast& one : report.captures) {
      rows.push_back({one.device, StrCat(one.nodes),
                      one.obstacle.empty() ? "one launch, once they have been recorded"
                                           : StrCat("node by node: ", one.obstacle)});
    }
    text += Table(rows);
  }
  if (!report.what_if.empty()) {
    text +=
        "\nwhat if (bytes of a step of all workers; variables and traffic of the busiest ps, "
        "max/mean):\n";
    rows = {{"ps", "workers", "spread", "variables", "", "traffic", "", "all links"}};
    for (const WhatIf& row : report.what_if) {
      rows.push_back({StrCat(row.num_ps), StrCat(row.num_workers), SpreadName(row.spread),
                      StrCat(row.variables.most), Decimal(row.variables.ratio),
                      StrCat(row.traffic.most), Decimal(row.traffic.ratio), ToText(row.all)});
    }
    text += Table(rows);
  }
  for (const std::string& warning : report.warnings) StrAppend(&text, "\nwarning: ", warning);
  if (!report.warnings.empty()) text += "\n";
  return text;
}

std::string ReportToJson(const PlanReport& report) {
  Json json = {{"format", "millrace step 1"},
               {"nodes", report.num_nodes},
               {"nodes_of_graph", report.num_nodes_of_graph}};
  Json& links = json["links"] = Json::array();
  for (const TransferSum& link : report.links) {
    links.push_back({{"from", link.from},
                     {"to", link.to},
                     {"tensors", link.tensors},
                     {"controls", link.controls},
                     {"not_exact", link.not_exact},
                     {"bytes", ToJson(link.bytes)}});
  }
  Json& not_exact = json["not_exact"] = Json::array();
  for (const Transfer& t : report.not_exact) {
    not_exact.push_back({{"tensor", t.tensor},
                         {"from", t.from},
                         {"to", t.to},
                         {"type", DataTypeName(t.type)},
                         {"shape", t.shape.DebugString()},
                         {"bytes", ToJson(t.bytes)},
                         {"each", t.each < 0 ? Json() : Json(t.each)},
                         {"why", t.why}});
  }
  Json& memory = json["memory"] = Json::array();
  for (const TaskMemory& m : report.memory) {
    memory.push_back({{"task", m.variables.task},
                      {"variables", ToJson(m.variables.bytes)},
                      {"step_in_order", m.in_order},
                      {"unknown_values", m.unknown_values},
                      {"step", ToJson(m.step)}});
  }
  Json& servers = json["ps"] = Json::array();
  for (const PsLoad& ps : report.ps) {
    servers.push_back({{"task", ps.variables.task},
                       {"variables", ps.variables.variables},
                       {"bytes", ToJson(ps.variables.bytes)},
                       {"sent", ToJson(ps.sent)},
                       {"received", ToJson(ps.received)}});
  }
  json["ps_variables"] = ToJson(report.ps_variables);
  json["ps_traffic"] = ToJson(report.ps_traffic);
  Json& captures = json["captures"] = Json::array();
  for (const CaptureForecast& one : report.captures) {
    captures.push_back({{"device", one.device}, {"nodes", one.nodes}, {"obstacle", one.obstacle}});
  }
  json["warnings"] = report.warnings;
  Json& rows = json["what_if"] = Json::array();
  for (const WhatIf& row : report.what_if) {
    rows.push_back({{"ps", row.num_ps},
                    {"workers", row.num_workers},
                    {"spread", SpreadName(row.spread)},
                    {"variables", ToJson(row.variables)},
                    {"traffic", ToJson(row.traffic)},
                    {"all", ToJson(row.all)}});
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace millrace
