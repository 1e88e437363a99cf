// `millrace trace`, `profile` and `doctor`: the next steps of a cluster, looked at in three ways.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "distributed_runtime/pages/cluster_trace.h"
#include "distributed_runtime/pages/step_tracer.h"
#include "distributed_runtime/service/observe_service.h"
#include "observe/page.h"
#include "tools/millrace/cluster_sample.h"
#include "tools/millrace/observe_commands.h"
#include "tools/millrace/offline.h"

namespace millrace {
namespace {

struct Flags {
  std::string target, output = "trace.json";
  int steps = 5;
  double seconds = 60;
  int top = 20;
};

// Of the masters that have run steps; if there is none yet, of the one that was named. The first
// trace is that of the named one, if it is among them.
StatusOr<std::vector<pb::TraceResponse>> Trace(const Flags& flags) {
  MR_ASSIGN_OR_RETURN(const std::string address, AddressOf(flags.target));
  MR_ASSIGN_OR_RETURN(const std::vector<TaskSample> tasks, SampleCluster(address));
  std::vector<std::string> masters;
  for (const TaskSample& task : tasks) {
    const bool runs = task.Sum("millrace_steps_total") + task.Sum("millrace_steps_running") > 0;
    if (task.error.empty() && runs) masters.push_back(task.address);
  }
  if (masters.empty()) masters.push_back(address);
  const auto limit = std::chrono::milliseconds(static_cast<int64_t>(flags.seconds * 1e3));
  std::vector<StatusOr<pb::TraceResponse>> answers(masters.size(), errors::Internal("no answer"));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < masters.size(); ++i) {
    threads.emplace_back([&, i] { answers[i] = TraceSteps(masters[i], flags.steps, limit); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<pb::TraceResponse> traces;
  for (StatusOr<pb::TraceResponse>& answer : answers) {
    if (!answer.ok()) return answer.status();
    if (answer->step_size() > 0) traces.push_back(*std::move(answer));
  }
  if (traces.empty()) {
    return errors::DeadlineExceeded("no step ended within ", DurationText(flags.seconds),
                                    " at any master of this cluster (--seconds)");
  }
  SetClocks(AlignClocks(traces), &traces);
  return traces;
}

std::string Percent(double share) {
  char text[16];
  std::snprintf(text, sizeof(text), "%5.1f %%", share * 100);
  return text;
}

// The task that was last most often, with what that cost in all.
std::string StragglerLine(const std::vector<pb::TraceResponse>& traces) {
  std::map<std::string, std::pair<int, int64_t>> late;
  int steps = 0;
  for (const pb::TraceResponse& trace : traces) {
    for (const pb::TracedStep& step : trace.step()) {
      int64_t cost = 0;
      const std::string task = Straggler(step, &cost);
      if (task.empty()) continue;
      ++steps;
      ++late[task].first;
      late[task].second += cost;
    }
  }
  if (late.empty()) return "";
  const auto worst = std::max_element(late.begin(), late.end(), [](const auto& a, const auto& b) {
    return a.second.second < b.second.second;
  });
  return StrCat("straggler: ", worst->first, ", last in ", worst->second.first, " of ", steps,
                " steps, ", DurationText(static_cast<double>(worst->second.second) * 1e-9),
                " after the next one in all\n");
}

int WriteTrace(const Flags& flags) {
  const auto traces = Trace(flags);
  if (!traces.ok()) return Complain("trace", traces.status(), kImpossible);
  const int code = Write("trace", flags.output, ClusterTrace(*traces));
  if (code != kDone) return code;
  int steps = 0;
  for (const pb::TraceResponse& trace : *traces) steps += trace.step_size();
  std::fprintf(stderr, "%d steps of %zu masters in %s, for ui.perfetto.dev\n%s", steps,
               traces->size(), flags.output.c_str(), StragglerLine(*traces).c_str());
  return kDone;
}

int Profile(const Flags& flags) {
  const auto traces = Trace(flags);
  if (!traces.ok()) return Complain("profile", traces.status(), kImpossible);
  std::string text = "      time   calls  op                    node, device\n";
  for (const NodeTime& node : TopNodes(*traces, static_cast<std::size_t>(flags.top))) {
    char line[64];
    std::snprintf(line, sizeof(line), "%10s %7lld  %-20.20s  ", DurationText(node.seconds).c_str(),
                  static_cast<long long>(node.calls), node.op.c_str());
    StrAppend(&text, line, node.node, ", ", node.device, "\n");
  }
  return Write("profile", "", text);
}

int Doctor(const Flags& flags) {
  const auto traces = Trace(flags);
  if (!traces.ok()) return Complain("doctor", traces.status(), kImpossible);
  std::string text;
  for (const TimeShares& shares : ShareTime(*traces)) {
    StrAppend(&text, shares.task, ": compute ", Percent(shares.compute), ", wait ",
              Percent(shares.wait), ", transfer ", Percent(shares.transfer), ", input ",
              Percent(shares.input), ", rest ", Percent(shares.rest()), "\n    ", Advice(shares),
              "\n");
  }
  StrAppend(&text, StragglerLine(*traces));
  return Write("doctor", "", text);
}

CLI::App* AddOne(CLI::App* app, const char* name, const char* what,
                 const std::shared_ptr<Flags>& flags, int (*run)(const Flags&),
                 std::function<int()>* chosen) {
  CLI::App* const command =
      AddCommand(app, name, what, [flags, run] { return run(*flags); }, chosen);
  command->add_option("target", flags->target, "grpc://host:port of any of its tasks")->required();
  command->add_option("--steps", flags->steps, "how many steps of each master")
      ->check(CLI::Range(1, StepTracer::kMostSteps))
      ->capture_default_str();
  command->add_option("--seconds", flags->seconds, "wait no longer for them")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  return command;
}

}  // namespace

void AddTraceCommands(CLI::App* app, std::function<int()>* chosen) {
  auto flags = std::make_shared<Flags>();
  AddOne(app, "trace", "record the next steps of all tasks of a cluster as one picture over time",
         flags, &WriteTrace, chosen)
      ->add_option("-o,--output", flags->output, "file")
      ->capture_default_str();
  AddOne(app, "profile", "list the nodes that took longest in the next steps of a cluster", flags,
         &Profile, chosen)
      ->add_option("--top", flags->top, "how many")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  AddOne(app, "doctor", "say where each task's time goes, and what to try", flags, &Doctor, chosen);
}

}  // namespace millrace
