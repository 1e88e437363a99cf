// SPDX-License-Identifier: Apache-2.0
#include "observe/step_log.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "observe/page.h"

namespace millrace {
namespace {

// Beyond so many calls at once the later ones are counted, and not watched one by one.
constexpr std::size_t kMostWatched = 256;

std::vector<StepRecord> Copies(const auto& records) {
  std::vector<StepRecord> copies;
  for (const auto& record : records) copies.push_back(*record);
  return copies;
}

// False only if both are known and differ.
bool MayBeOf(const StepRecord& step, int64_t request_id) {
  return request_id == 0 || step.request_id == 0 || step.request_id == request_id;
}

}  // namespace

int StepRecord::Slowest(int64_t* cost_nanos) const {
  int slowest = -1;
  int64_t most = 0, next = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int64_t end = parts[i].end_nanos != 0 ? parts[i].end_nanos : SteadyNanos();
    const int64_t nanos = end - parts[i].begin_nanos;
    if (slowest < 0 || nanos > most) {
      next = slowest < 0 ? 0 : most;
      most = nanos;
      slowest = static_cast<int>(i);
    } else {
      next = std::max(next, nanos);
    }
  }
  *cost_nanos = most - next;
  return slowest;
}

std::string StepRecord::Culprit() const {
  int64_t cost = 0;
  const int slowest = Slowest(&cost);
  std::vector<std::string> said;
  if (slowest >= 0 && parts.size() > 1) {
    const Part& part = parts[static_cast<std::size_t>(slowest)];
    const double seconds = static_cast<double>(cost) * 1e-9;
    said.push_back(part.end_nanos == 0 ? StrCat(part.task, " has not answered")
                                       : StrCat(part.task, " was last, ", DurationText(seconds),
                                                " after the next one"));
  }
  const auto wait = std::max_element(
      waits.begin(), waits.end(), [](const Wait& a, const Wait& b) { return a.nanos < b.nanos; });
  if (wait != waits.end()) {
    said.push_back(StrCat("waited ", DurationText(static_cast<double>(wait->nanos) * 1e-9), " for ",
                          wait->task));
  }
  return StrJoin(said, "; ");
}

std::shared_ptr<StepRecord> StepLog::Begin(std::string session, int64_t examples, int64_t step_id,
                                           int64_t request_id) {
  begun.Add();
  auto step = std::make_shared<StepRecord>();
  step->session = std::move(session);
  step->request_id = request_id;
  step->step_id = step_id;
  step->examples = examples;
  step->begin_wall_nanos = wall_();
  step->begin_nanos = steady_();
  MutexLock lock(&mu_);
  if (running_.size() < kMostWatched) running_.push_back(step);
  return step;
}

void StepLog::End(const std::shared_ptr<StepRecord>& step, std::string error) {
  const int64_t now = steady_();
  ended.Add();
  if (!error.empty()) failed.Add();
  examples.Add(step->examples);
  latency.Add(now - step->begin_nanos);
  Shared dropped;  // freed without the lock
  MutexLock lock(&mu_);
  step->end_nanos = now;
  step->error = std::move(error);
  const auto it = std::find(running_.begin(), running_.end(), step);
  if (it == running_.end()) return;
  running_.erase(it);
  last_.push_front(step);
  if (last_.size() > kLast) {
    dropped = std::move(last_.back());
    last_.pop_back();
  }
  if (slowest_.size() < kSlowest || step->nanos() > slowest_.begin()->first) {
    slowest_.emplace(step->nanos(), step);
    if (slowest_.size() > kSlowest) slowest_.erase(slowest_.begin());
  }
}

StepLog::Shared StepLog::FindNumbered(int64_t step_id, int64_t request_id) const {
  const auto it = std::find_if(running_.begin(), running_.end(), [=](const Shared& step) {
    return step->step_id == step_id && MayBeOf(*step, request_id);
  });
  return it == running_.end() ? nullptr : *it;
}

StepLog::Shared StepLog::FindUnnumbered(std::string_view session, int64_t request_id) const {
  Shared only;
  bool are_several = false;
  for (const Shared& step : running_) {
    if (step->step_id != 0 || step->session != session || !MayBeOf(*step, request_id)) continue;
    if (request_id != 0 && step->request_id == request_id) return step;
    are_several = are_several || only != nullptr;
    only = step;
  }
  return are_several ? nullptr : only;
}

void StepLog::PartBegins(std::string_view session, int64_t step_id, const std::string& task,
                         int64_t request_id) {
  const int64_t now = steady_();
  MutexLock lock(&mu_);
  Shared step = FindNumbered(step_id, request_id);
  if (step == nullptr) {
    step = FindUnnumbered(session, request_id);
    if (step == nullptr) return;
    step->step_id = step_id;
  }
  step->parts.push_back({task, now, 0});
}

void StepLog::PartEnds(int64_t step_id, std::string_view task, int64_t request_id) {
  const int64_t now = steady_();
  MutexLock lock(&mu_);
  const Shared step = FindNumbered(step_id, request_id);
  if (step == nullptr) return;
  for (StepRecord::Part& part : step->parts) {
    if (part.task == task && part.end_nanos == 0) part.end_nanos = now;
  }
}

void StepLog::Waited(int64_t step_id, std::string_view task, int64_t nanos) {
  MutexLock lock(&mu_);
  const Shared step = FindNumbered(step_id);
  if (step == nullptr) return;
  for (StepRecord::Wait& wait : step->waits) {
    if (wait.task != task) continue;
    wait.nanos = std::max(wait.nanos, nanos);
    return;
  }
  step->waits.push_back({std::string(task), nanos});
}

std::vector<StepRecord> StepLog::Last() const {
  MutexLock lock(&mu_);
  return Copies(last_);
}

std::vector<StepRecord> StepLog::Slowest() const {
  std::vector<StepRecord> slowest;
  MutexLock lock(&mu_);
  for (auto it = slowest_.rbegin(); it != slowest_.rend(); ++it) slowest.push_back(*it->second);
  return slowest;
}

std::vector<StepRecord> StepLog::Running() const {
  MutexLock lock(&mu_);
  return Copies(running_);
}

}  // namespace millrace
