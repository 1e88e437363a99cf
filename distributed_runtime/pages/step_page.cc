// SPDX-License-Identifier: Apache-2.0
// /stepz: which steps were slow, and whose fault it was.
#include <algorithm>
#include <ctime>

#include "base/clock.h"
#include "base/strings.h"
#include "distributed_runtime/pages/task_pages.h"

namespace millrace {
namespace {

constexpr int kRefreshSeconds = 5;

double ToSeconds(int64_t nanos) { return static_cast<double>(nanos) * 1e-9; }

// "14:03:07.250", in UTC.
std::string TimeText(int64_t wall_nanos) {
  const std::time_t seconds = wall_nanos / 1'000'000'000;
  std::tm time{};
  gmtime_r(&seconds, &time);
  char text[16];
  std::strftime(text, sizeof(text), "%H:%M:%S", &time);
  const std::string millis = StrCat(1000 + wall_nanos / 1'000'000 % 1000);
  return StrCat(text, ".", millis.substr(1));
}

// "/job:ps/replica:0/task:0 3 ms, /job:worker/replica:0/task:0 1 ms", the slowest first.
std::string PartsText(const StepRecord& step, int64_t now) {
  std::vector<std::pair<int64_t, std::string_view>> parts;
  for (const StepRecord::Part& part : step.parts) {
    parts.emplace_back((part.end_nanos != 0 ? part.end_nanos : now) - part.begin_nanos, part.task);
  }
  std::sort(parts.rbegin(), parts.rend());
  std::vector<std::string> said;
  for (const auto& [nanos, task] : parts) {
    said.push_back(StrCat(task, " ", DurationText(ToSeconds(nanos))));
  }
  return said.empty() ? "this task alone" : StrJoin(said, ", ");
}

std::string TableOf(const std::vector<StepRecord>& steps, std::string_view none) {
  HtmlTable table(
      {"began (UTC)", "#took", "because", "tasks", "session", "request", "#examples", "outcome"});
  const int64_t now = SteadyNanos();
  for (const StepRecord& step : steps) {
    const bool runs = step.end_nanos == 0;
    table.Row({TimeText(step.begin_wall_nanos),
               DurationText(ToSeconds((runs ? now : step.end_nanos) - step.begin_nanos)),
               step.Culprit(), PartsText(step, now), step.session,
               step.request_id == 0 ? "" : Hex16(static_cast<uint64_t>(step.request_id)),
               step.examples == 0 ? "" : StrCat(step.examples),
               runs                 ? "runs"
               : step.error.empty() ? "ok"
                                    : step.error});
  }
  return table.Take(none);
}

}  // namespace

Page MakeStepPage(const TaskFacts& facts, const PageTable& pages) {
  const StepLog& log = facts.observed->steps;
  const Histogram::Snapshot latency = log.latency.Read();
  std::string summary = StrCat("<p>Steps that have ended: ", log.ended.value(),
                               ", with an error: ", log.failed.value(), ".");
  if (latency.count > 0) {
    StrAppend(&summary, " Half of them took at most ", DurationText(latency.Quantile(0.5)),
              ", all but one in a hundred at most ", DurationText(latency.Quantile(0.99)), ".");
  }
  return {200, kHtmlType,
          pages.Frame(
              "Steps", StrCat("of the sessions at ", facts.task),
              StrCat(summary, "</p><h2>Running</h2>", TableOf(log.Running(), "No step is running."),
                     "<h2>Slowest</h2>", TableOf(log.Slowest(), "There was no step yet."),
                     "<h2>Last</h2>", TableOf(log.Last(), "There was no step yet.")),
              kRefreshSeconds)};
}

}  // namespace millrace
