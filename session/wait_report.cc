// SPDX-License-Identifier: Apache-2.0
#include "session/wait_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {
namespace {

// What has run for so long, or nobody knows how long, is not on its way through.
constexpr double kLongRun = 0.2;  // seconds
// Payloads travel in the trailer of a call, where there is room for little, and for others too.
constexpr std::size_t kMostInPayload = 1200;  // bytes
constexpr std::size_t kMostTextInPayload = 160;

// Who has begun which step and not ended it.
using StepsOfTasks = std::map<std::string, std::set<int64_t>, std::less<>>;

int RankOfReceive(const pb::Wait& wait, const StepsOfTasks& steps) {
  const auto peer = steps.find(wait.peer());
  // Nobody has asked it, or it did not answer, which is told apart.
  if (peer == steps.end()) return 9;
  return peer->second.contains(wait.step_id()) ? 9 : 7;
}

int RankOf(const pb::Wait& wait, const StepsOfTasks& steps) {
  switch (wait.kind()) {
    case pb::Wait::TASK:
      return 0;
    case pb::Wait::KERNEL:
    case pb::Wait::LOOP:
      return wait.seconds() >= kLongRun || wait.seconds() == 0 ? 1 : 8;
    case pb::Wait::ACCUMULATOR:
      return 2;
    case pb::Wait::COLLECTIVE:
      return 3;
    case pb::Wait::LOCK:
      return 4;
    case pb::Wait::QUEUE:
      return 5;
    case pb::Wait::RECEIVE:
      return RankOfReceive(wait, steps);
    default:
      return 6;
  }
}

pb::Wait NoAnswer(const TaskAnswer& answer) {
  pb::Wait wait;
  wait.set_kind(pb::Wait::TASK);
  wait.set_task(answer.task);
  wait.set_peer(answer.task);
  wait.set_text(StrCat("it does not answer (", Message(answer.status), ")"));
  return wait;
}

// Of several that miss the same task, the first one stays, with what the others know besides.
void TellMissingTasksOnce(std::vector<pb::Wait>* waits) {
  std::map<std::string, std::size_t> told;
  std::vector<pb::Wait> kept;
  for (pb::Wait& wait : *waits) {
    if (wait.kind() == pb::Wait::TASK) {
      const auto [at, is_new] = told.try_emplace(wait.peer(), kept.size());
      if (!is_new) {
        pb::Wait& first = kept[at->second];
        if (first.task() == first.peer() && first.seconds() == 0 && wait.seconds() > 0) {
          first.set_text(StrCat(first.text(), "; ", wait.text()));
        }
        first.set_seconds(std::max(first.seconds(), wait.seconds()));
        continue;
      }
    }
    kept.push_back(std::move(wait));
  }
  waits->swap(kept);
}

// Messages hold no text that is not UTF-8, and graphs may name queues by any bytes.
std::string Printable(std::string_view text) {
  std::string printable(text);
  for (char& c : printable) {
    if (c < ' ' || c > '~') c = '?';
  }
  return printable;
}

// In tenths.
std::string Seconds(double seconds) {
  const double tenths = std::floor(seconds * 10) / 10;
  return StrCat(tenths, " s");
}

}  // namespace

void AddWait(const Wait& wait, int64_t step_id, int64_t now, pb::TaskWaits* waits) {
  if (waits->wait_size() >= kMostWaits) {
    waits->set_left_out(waits->left_out() + 1);
    return;
  }
  pb::Wait& added = *waits->add_wait();
  added.set_kind(static_cast<pb::Wait::Kind>(wait.kind));
  added.set_step_id(step_id);
  added.set_node(Printable(wait.node));
  added.set_op(Printable(wait.op));
  added.set_device(Printable(wait.device));
  added.set_origin(Printable(wait.origin));
  added.set_name(Printable(wait.name));
  added.set_peer(Printable(wait.peer));
  added.set_text(Printable(wait.text));
  if (wait.since_nanos > 0 && wait.since_nanos < now) {
    added.set_seconds(static_cast<double>(now - wait.since_nanos) * 1e-9);
  }
}

pb::WaitReport MakeWaitReport(std::span<TaskAnswer> answers) {
  pb::WaitReport report;
  StepsOfTasks steps;
  std::vector<pb::Wait> waits;
  for (TaskAnswer& answer : answers) {
    report.add_asked(answer.task);
    if (!answer.status.ok()) {
      if (!errors::IsUnimplemented(answer.status)) waits.push_back(NoAnswer(answer));
      continue;
    }
    std::set<int64_t>& begun = steps[answer.task];
    begun.insert(answer.waits.step_id().begin(), answer.waits.step_id().end());
    report.set_left_out(report.left_out() + answer.waits.left_out());
  }
  for (TaskAnswer& answer : answers) {
    for (pb::Wait& wait : *answer.waits.mutable_wait()) {
      wait.set_task(answer.task);
      if (wait.kind() == pb::Wait::RECEIVE && RankOfReceive(wait, steps) == 7) {
        wait.set_text(StrCat(wait.text(), ", which does not run the step: nobody there sends it"));
      }
      waits.push_back(std::move(wait));
    }
  }
  TellMissingTasksOnce(&waits);
  std::stable_sort(waits.begin(), waits.end(), [&](const pb::Wait& a, const pb::Wait& b) {
    const int rank_a = RankOf(a, steps), rank_b = RankOf(b, steps);
    return rank_a != rank_b ? rank_a < rank_b : a.seconds() > b.seconds();
  });
  for (pb::Wait& wait : waits) *report.add_wait() = std::move(wait);
  return report;
}

std::string WaitText(const pb::Wait& wait) {
  std::vector<std::string> where;
  if (!wait.node().empty()) where.push_back(StrCat("{{node ", wait.node(), "}}"));
  if (!wait.op().empty()) {
    where.push_back(
        StrCat("op ", wait.op(), wait.device().empty() ? "" : StrCat(" on ", wait.device())));
  }
  if (!wait.origin().empty()) where.push_back(StrCat("made at ", wait.origin()));
  if (wait.seconds() > 0 && wait.kind() != pb::Wait::TASK) {
    where.push_back(StrCat("for ", Seconds(wait.seconds())));
  }
  return where.empty() ? wait.text() : StrCat(wait.text(), " (", StrJoin(where, ", "), ")");
}

std::string WaitLines(const pb::WaitReport& report, std::size_t most) {
  std::string lines;
  const auto all = static_cast<std::size_t>(report.wait_size());
  for (std::size_t i = 0; i < std::min(all, most); ++i) {
    const pb::Wait& wait = report.wait(static_cast<int>(i));
    StrAppend(&lines, "\n  ", wait.task(), ": ", WaitText(wait));
  }
  const std::size_t more = all - std::min(all, most) + static_cast<std::size_t>(report.left_out());
  if (more > 0) StrAppend(&lines, "\n  and ", more, " more");
  return lines;
}

Status WithWaitReport(Status status, const pb::WaitReport& report) {
  if (status.ok() || report.wait_size() == 0) return status;
  pb::WaitReport part;
  for (const pb::Wait& wait : report.wait()) {
    pb::Wait& added = *part.add_wait() = wait;
    for (std::string* text : {added.mutable_text(), added.mutable_name(), added.mutable_node(),
                              added.mutable_device(), added.mutable_origin()}) {
      if (text->size() > kMostTextInPayload) text->resize(kMostTextInPayload);
    }
    if (part.ByteSizeLong() <= kMostInPayload) continue;
    part.mutable_wait()->RemoveLast();
    break;
  }
  part.set_left_out(report.left_out() + report.wait_size() - part.wait_size());
  status.SetPayload(kWaitReportPayload, part.SerializeAsString());
  return status;
}

bool FindWaitReport(const Status& status, pb::WaitReport* report) {
  const auto payload = status.GetPayload(kWaitReportPayload);
  return payload.has_value() && report->ParseFromString(std::string(*payload));
}

}  // namespace millrace
