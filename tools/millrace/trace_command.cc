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

// How long masters are watched to see which of them are busy.
constexpr std::chrono::milliseconds kWatch(2000), kLook(100);

bool IsBusy(const TaskSample& before, const TaskSample& now) {
  return now.Sum("millrace_steps_running") > 0 ||
         now.Sum("millrace_steps_total") > before.Sum("millrace_steps_total");
}

// Addresses of those of `masters` that run steps now. One that ran steps once and is idle would
// keep whoever traces it waiting for all the time there is. All of them if none is seen busy.
std::vector<std::string> BusyOnes(const std::string& address, double seconds,
                                  const std::vector<TaskSample>& masters) {
  std::vector<bool> busy(masters.size());
  const auto watch =
      std::min<std::chrono::duration<double>>(kWatch, std::chrono::duration<double>(seconds / 4));
  const auto end = std::chrono::steady_clock::now() + watch;
  while (std::chrono::steady_clock::now() < end &&
         std::find(busy.begin(), busy.end(), false) != busy.end()) {
    std::this_thread::sleep_for(kLook);
    const StatusOr<std::vector<TaskSample>> now = SampleCluster(address);
    if (!now.ok()) break;
    for (std::size_t i = 0; i < masters.size(); ++i) {
      for (const TaskSample& task : *now) {
        if (task.address != masters[i].address || !task.error.empty()) continue;
        busy[i] = busy[i] || IsBusy(masters[i], task);
      }
    }
  }
  const bool none = std::find(busy.begin(), busy.end(), true) == busy.end();
  std::vector<std::string> chosen;
  for (std::size_t i = 0; i < masters.size(); ++i) {
    if (none || busy[i]) chosen.push_back(masters[i].address);
  }
  return chosen;
}

// The masters to trace: those that are busy; if none has ever run a step, the one that was named.
StatusOr<std::vector<std::string>> FindMasters(const std::string& address, double seconds) {
  MR_ASSIGN_OR_RETURN(std::vector<TaskSample> tasks, SampleCluster(address));
  std::erase_if(tasks, [](const TaskSample& task) {
    return !task.error.empty() ||
           task.Sum("millrace_steps_total") + task.Sum("millrace_steps_running") == 0;
  });
  if (tasks.empty()) return std::vector<std::string>{address};
  if (tasks.size() == 1) return std::vector<std::string>{tasks[0].address};
  return BusyOnes(address, seconds, tasks);
}

// The first trace is that of the master that was named, if it is among them. A master that cannot
// be traced is named on standard error; its error is the whole's only if no other one answered.
StatusOr<std::vector<pb::TraceResponse>> Trace(const char* command, const Flags& flags) {
  MR_ASSIGN_OR_RETURN(const std::string address, AddressOf(flags.target));
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> masters, FindMasters(address, flags.seconds));
  const auto limit = std::chrono::milliseconds(static_cast<int64_t>(flags.seconds * 1e3));
  std::vector<StatusOr<pb::TraceResponse>> answers(masters.size(), errors::Internal("no answer"));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < masters.size(); ++i) {
    threads.emplace_back([&, i] { answers[i] = TraceSteps(masters[i], flags.steps, limit); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<pb::TraceResponse> traces;
  Status error;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i].ok()) {
      error.Update(answers[i].status());
      continue;
    }
    if (answers[i]->step_size() > 0) traces.push_back(*std::move(answers[i]));
  }
  if (traces.empty()) {
    MR_RETURN_IF_ERROR(error);
    return errors::DeadlineExceeded("no step ended within ", DurationText(flags.seconds),
                                    " at any master of this cluster (--seconds)");
  }
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].ok()) continue;
    const std::string why(Message(answers[i].status()));
    WriteBesideLog(LogLevel::kWarning, StrCat("millrace ", command, ": without the steps of ",
                                              masters[i], ": ", why, "\n"));
  }
  SetClocks(AlignClocks(traces), &traces);
  return traces;
}

std::string Percent(double share) {
  char text[16];
  std::snprintf(text, sizeof(text), "%5.1f %%", share * 100);
  return text;
}

// Nanoseconds from the first call of a step's tasks to the last answer.
int64_t LengthOf(const pb::TracedStep& step) {
  int64_t begin = 0, end = 0;
  for (const pb::TracedPart& part : step.part()) {
    begin = begin == 0 ? part.sent_nanos() : std::min(begin, part.sent_nanos());
    end = std::max(end, part.answered_nanos());
  }
  return end - begin;
}

// The task that being last cost most, with what that cost in all and of those steps.
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
      if (task.empty()) continue;
      ++steps;
      Late& one = late[task];
      ++one.steps;
      one.cost += cost;
      one.length += LengthOf(step);
    }
  }
  if (late.empty()) return "";
  const auto& [task, worst] =
      *std::max_element(late.begin(), late.end(),
                        [](const auto& a, const auto& b) { return a.second.cost < b.second.cost; });
  const double share =
      worst.length > 0 ? static_cast<double>(worst.cost) / static_cast<double>(worst.length) : 0;
  return StrCat("straggler: ", task, ", last in ", worst.steps, " of ", steps, " steps, ",
                DurationText(static_cast<double>(worst.cost) * 1e-9),
                " after the next one in all, ", StripWhitespace(Percent(share)),
                " of the time of these steps\n");
}

int WriteTrace(const Flags& flags) {
  const auto traces = Trace("trace", flags);
  if (!traces.ok()) return Complain("trace", traces.status(), kImpossible);
  const int code = Write("trace", flags.output, ClusterTrace(*traces));
  if (code != kDone) return code;
  int steps = 0;
  for (const pb::TraceResponse& trace : *traces) steps += trace.step_size();
  WriteBesideLog(LogLevel::kInfo,
                 StrCat(steps, " steps of ", traces->size(), " masters in ", flags.output,
                        ", for ui.perfetto.dev\n", StragglerLine(*traces)));
  return kDone;
}

int Profile(const Flags& flags) {
  const auto traces = Trace("profile", flags);
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
  const auto traces = Trace("doctor", flags);
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
