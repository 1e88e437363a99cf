// SPDX-License-Identifier: Apache-2.0
// `millrace trace`, `profile` and `doctor`: the next steps of a cluster, looked at in three ways.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/text/log_format.h"
#include "distributed_runtime/pages/cluster_trace.h"
#include "distributed_runtime/pages/step_tracer.h"
#include "distributed_runtime/pages/trace_nodes.h"
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
  bool seconds_given = false;
  double timeout = kAnswerSeconds;
  int top = 20;
};

// How long steps are waited for beside a task that says nothing, unless it is said how long.
constexpr double kSecondsBesideSilent = 10;

// How long masters are watched to see which of them are busy.
constexpr std::chrono::milliseconds kWatch(2000), kLook(100);

bool IsBusy(const TaskSample& before, const TaskSample& now) {
  return now.Sum("millrace_steps_running") > 0 ||
         now.Sum("millrace_steps_total") > before.Sum("millrace_steps_total");
}

// Those of `masters` that run steps now. One that ran steps once and is idle would keep whoever
// traces it waiting for all the time there is. All of them if none is seen busy.
std::vector<TaskSample> BusyOnes(const Flags& flags, std::vector<TaskSample> masters) {
  std::vector<TaskAddress> asked;
  for (const TaskSample& master : masters) asked.push_back({master.task, master.address});
  std::vector<bool> busy(masters.size());
  const auto watch = std::min<std::chrono::duration<double>>(
      kWatch, std::chrono::duration<double>(flags.seconds / 4));
  const auto end = std::chrono::steady_clock::now() + watch;
  while (std::chrono::steady_clock::now() < end &&
         std::find(busy.begin(), busy.end(), false) != busy.end()) {
    std::this_thread::sleep_for(kLook);
    const std::vector<TaskSample> now = SampleTasks(asked, Nanoseconds(flags.timeout));
    for (std::size_t i = 0; i < masters.size(); ++i) {
      if (now[i].error.empty()) busy[i] = busy[i] || IsBusy(masters[i], now[i]);
    }
  }
  if (std::find(busy.begin(), busy.end(), true) == busy.end()) return masters;
  std::vector<TaskSample> chosen;
  for (std::size_t i = 0; i < masters.size(); ++i) {
    if (busy[i]) chosen.push_back(std::move(masters[i]));
  }
  return chosen;
}

// Whom to trace, and who cannot be.
struct Masters {
  std::vector<std::string> addresses;
  std::vector<std::string> silent;  // tasks that said nothing, and why: see SilenceText
};

// The masters that are busy; if none has ever run a step, the one that was named.
StatusOr<Masters> FindMasters(const std::string& address, const Flags& flags) {
  ClusterSampler cluster(address, Nanoseconds(flags.timeout));
  MR_ASSIGN_OR_RETURN(std::vector<TaskSample> tasks, cluster.Sample());
  Masters masters;
  for (const TaskSample& task : tasks) {
    if (!task.error.empty()) masters.silent.push_back(SilenceText(task));
  }
  std::erase_if(tasks, [](const TaskSample& task) {
    return !task.error.empty() ||
           task.Sum("millrace_steps_total") + task.Sum("millrace_steps_running") == 0;
  });
  if (tasks.size() > 1) tasks = BusyOnes(flags, std::move(tasks));
  for (const TaskSample& task : tasks) masters.addresses.push_back(task.address);
  if (tasks.empty()) masters.addresses.push_back(address);
  return masters;
}

struct Traced {
  std::vector<pb::TraceResponse> traces;
  std::vector<std::string> silent;
};

// The first trace is that of the master that was named, if it is among them. What is missing, tasks
// that said nothing and masters that cannot be traced, is named on standard error; it is an error
// only if there is no trace at all.
StatusOr<Traced> Trace(const char* command, const Flags& flags) {
  MR_ASSIGN_OR_RETURN(const std::string address, AddressOf(flags.target));
  MR_ASSIGN_OR_RETURN(const Masters found, FindMasters(address, flags));
  const std::vector<std::string>& masters = found.addresses;
  // Steps that need a silent task do not end.
  const double seconds = found.silent.empty() || flags.seconds_given
                             ? flags.seconds
                             : std::min(flags.seconds, kSecondsBesideSilent);
  for (const std::string& text : found.silent) {
    WriteBesideLog(LogLevel::kWarning, StrCat("millrace ", command, ": without ", text, "\n"));
  }
  const auto limit = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
  std::vector<StatusOr<pb::TraceResponse>> answers(masters.size(), errors::Internal("no answer"));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < masters.size(); ++i) {
    threads.emplace_back([&, i] { answers[i] = TraceSteps(masters[i], flags.steps, limit); });
  }
  for (std::thread& thread : threads) thread.join();
  Traced traced{{}, found.silent};
  Status error;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i].ok()) {
      error.Update(answers[i].status());
      continue;
    }
    if (answers[i]->step_size() > 0) traced.traces.push_back(*std::move(answers[i]));
  }
  if (traced.traces.empty()) {
    MR_RETURN_IF_ERROR(error);
    return errors::DeadlineExceeded("no step ended within ", DurationText(seconds),
                                    " at any master of this cluster (--seconds)",
                                    found.silent.empty() ? "" : "; ", StrJoin(found.silent, "; "));
  }
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].ok()) continue;
    const std::string why(Message(answers[i].status()));
    WriteBesideLog(LogLevel::kWarning, StrCat("millrace ", command, ": without the steps of ",
                                              masters[i], ": ", why, "\n"));
  }
  SetClocks(AlignClocks(traced.traces), &traced.traces);
  return traced;
}

std::string Percent(double share) {
  char text[16];
  std::snprintf(text, sizeof(text), "%5.1f %%", share * 100);
  return text;
}

// The task whose work cost most beyond that of the others, with what that cost in all and of those
// steps.
std::string StragglerLine(const std::vector<pb::TraceResponse>& traces) {
  struct Late {
    int steps = 0;
    int64_t cost = 0, length = 0;
  };
  std::map<std::string, Late> late;
  int steps = 0;
  for (const pb::TraceResponse& trace : traces) {
    for (const pb::TracedStep& step : trace.step()) {
      int64_t cost = 0;
      const std::string task = Straggler(step, &cost);
      ++steps;
      if (task.empty()) continue;
      Late& one = late[task];
      ++one.steps;
      one.cost += cost;
      one.length += WindowOf(step).nanos();
    }
  }
  if (late.empty()) return "";
  const auto& [task, worst] =
      *std::max_element(late.begin(), late.end(),
                        [](const auto& a, const auto& b) { return a.second.cost < b.second.cost; });
  const double share =
      worst.length > 0 ? static_cast<double>(worst.cost) / static_cast<double>(worst.length) : 0;
  return StrCat("straggler: ", task, ", in ", worst.steps, " of ", steps, " steps, worked ",
                DurationText(static_cast<double>(worst.cost) * 1e-9),
                " longer than the others in all, ", StripWhitespace(Percent(share)),
                " of the time of these steps\n");
}

int WriteTrace(const Flags& flags) {
  // Steps that nobody could be shown need not be waited for.
  const Status writable = CheckOutput(flags.output);
  if (!writable.ok()) return Complain("trace", writable, kWrongInput);
  const auto traced = Trace("trace", flags);
  if (!traced.ok()) return Complain("trace", traced.status(), kImpossible);
  const auto& traces = traced->traces;
  const int code = Write("trace", flags.output, ClusterTrace(traces));
  if (code != kDone) return code;
  int steps = 0;
  for (const pb::TraceResponse& trace : traces) steps += trace.step_size();
  WriteBesideLog(LogLevel::kInfo,
                 StrCat(steps, " steps of ", traces.size(), " masters in ", flags.output,
                        ", for ui.perfetto.dev\n", StragglerLine(traces)));
  return kDone;
}

int Profile(const Flags& flags) {
  const auto traced = Trace("profile", flags);
  if (!traced.ok()) return Complain("profile", traced.status(), kImpossible);
  std::string text = "      time   calls  op                    node, device\n";
  for (const NodeTime& node : TopNodes(traced->traces, static_cast<std::size_t>(flags.top))) {
    char line[64];
    std::snprintf(line, sizeof(line), "%10s %7lld  %-20.20s  ", DurationText(node.seconds).c_str(),
                  static_cast<long long>(node.calls), node.op.c_str());
    StrAppend(&text, line, node.node, ", ", node.device, node.waits ? ", waits\n" : "\n");
  }
  return Write("profile", "", text);
}

int Doctor(const Flags& flags) {
  const auto traced = Trace("doctor", flags);
  if (!traced.ok()) return Complain("doctor", traced.status(), kImpossible);
  std::string text;
  for (const TimeShares& shares : ShareTime(traced->traces)) {
    StrAppend(&text, shares.task, ": compute ", Percent(shares.compute), ", wait ",
              Percent(shares.wait), ", transfer ", Percent(shares.transfer), ", input ",
              Percent(shares.input), ", rest ", Percent(shares.rest()), "\n    ", Advice(shares),
              "\n");
  }
  for (const std::string& silent : traced->silent) StrAppend(&text, silent, "\n");
  StrAppend(&text, StragglerLine(traced->traces));
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
  command
      ->add_option("--seconds", flags->seconds,
                   "wait no longer for them (unless given, 10 beside a task that says nothing)")
      ->check(CLI::Range(0.1, 3600.0))
      ->each([flags](const std::string&) { flags->seconds_given = true; })
      ->capture_default_str();
  AddTimeoutFlag(command, &flags->timeout);
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
