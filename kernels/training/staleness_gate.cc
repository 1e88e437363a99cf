// SPDX-License-Identifier: Apache-2.0
#include "kernels/training/staleness_gate.h"

#include <algorithm>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {

void StalenessGate::Enter(int64_t step, std::string worker, const Waiter& waiter, Done done) {
  WaitInLine(&enters_, step, std::move(worker), waiter, std::move(done));
}

void StalenessGate::Commit(int64_t step, const Waiter& waiter, Done done) {
  std::string worker;
  bool entered = false;
  {
    MutexLock lock(&mu_);
    const auto it = Find(step);
    entered = it != members_.end();
    if (entered) worker = it->worker;
  }
  if (!entered) {
    return done(errors::FailedPrecondition("the staleness bound '", name_,
                                           "': a step that has not entered makes no updates"));
  }
  WaitInLine(&commits_, step, std::move(worker), waiter, std::move(done));
}

void StalenessGate::Finish(int64_t step) {
  Finished finished;
  {
    MutexLock lock(&mu_);
    if (!updating_ || updater_ != step) return;
    EndUpdate();
    Remove(step);
    Serve(&finished);
  }
  Call(finished);
}

void StalenessGate::Leave(int64_t step) {
  Finished finished;
  {
    MutexLock lock(&mu_);
    if (updating_ && updater_ == step) EndUpdate();
    Remove(step);
    Serve(&finished);
  }
  Call(finished);
}

StalenessGate::Totals StalenessGate::totals() const {
  MutexLock lock(&mu_);
  return {updates_, max_staleness_, waits_};
}

std::string StalenessGate::DebugString() const {
  MutexLock lock(&mu_);
  return StrCat("staleness bound '", name_, "' of ", bound_, ", ", members_.size(), " steps, ",
                updates_, " updates, at most ", max_staleness_, " old");
}

void StalenessGate::OnRemoved() {
  Finished finished;
  {
    MutexLock lock(&mu_);
    for (Line* line : {&enters_, &commits_}) {
      for (Attempt& attempt : *line) {
        End(std::move(attempt), errors::Cancelled("the staleness bound '", name_, "' was removed"),
            &finished);
      }
      line->clear();
    }
  }
  Call(finished);
}

void StalenessGate::WaitInLine(Line* line, int64_t step, std::string worker, const Waiter& waiter,
                               Done done) {
  CancellationManager* const cancellation = waiter.cancellation;
  Finished finished;
  bool cancelled = false;
  {
    MutexLock lock(&mu_);
    const int64_t id = next_id_++;
    CancellationManager::Token token = -1;
    if (cancellation != nullptr) {
      token = cancellation->NextToken();
      // The callback may outlive the attempt, but it only looks for an id.
      cancelled = !cancellation->RegisterCallback(
          token, [self = RefPtr<StalenessGate>::Share(this), line, id] { self->Cancel(line, id); });
    }
    if (!cancelled) {
      line->push_back({id, step, std::move(worker), cancellation, token, std::move(done),
                       std::string(waiter.task), waiter.session});
      Serve(&finished);
      if (!line->empty() && line->back().id == id) {
        ++waits_;
        if (cancellation != nullptr) {
          cancellation->Describe(token, [self = RefPtr<StalenessGate>::Share(this), line, step,
                                         wait = waiter.Begin(Wait::Kind::kLock, name_)]() mutable {
            MutexLock lock(&self->mu_);
            const Member* const slow = self->WaitedFor(line, step);
            wait.text = StrCat(line == &self->commits_ ? "its turn to update" : "its turn to read",
                               " within the staleness bound '", self->name_, "' of ", self->bound_,
                               slow == nullptr ? "" : ": an update of ",
                               slow == nullptr ? "" : slow->worker);
            return EncodeWait(wait);
          });
        }
      }
    }
  }
  if (cancelled) done(errors::Cancelled("the step was cancelled"));
  Call(finished);
}

void StalenessGate::Cancel(Line* line, int64_t id) {
  Finished finished;
  {
    MutexLock lock(&mu_);
    const auto it =
        std::find_if(line->begin(), line->end(), [id](const Attempt& a) { return a.id == id; });
    if (it == line->end()) return;  // served in the meantime
    Attempt attempt = std::move(*it);
    line->erase(it);
    attempt.cancellation = nullptr;  // its callback is this one
    const Member* const slow = WaitedFor(line, attempt.step);
    Status status =
        errors::Cancelled("cancelled while waiting within the staleness bound of ", bound_,
                          slow == nullptr ? "" : StrCat(" for an update of ", slow->worker));
    End(std::move(attempt), std::move(status), &finished);
    Serve(&finished);
  }
  Call(finished);
}

void StalenessGate::End(Attempt attempt, Status status, Finished* finished) {
  finished->push_back([c = attempt.cancellation, token = attempt.token,
                       done = std::move(attempt.done), status = std::move(status)] {
    // A cancellation that is under way may still call back; it will not find the attempt.
    if (c != nullptr) (void)c->TryDeregisterCallback(token);
    done(status);
  });
}

std::vector<StalenessGate::Member>::const_iterator StalenessGate::Find(int64_t step) const {
  return std::find_if(members_.begin(), members_.end(),
                      [step](const Member& m) { return m.step == step; });
}

void StalenessGate::Remove(int64_t step) {
  std::erase_if(members_, [step](const Member& m) { return m.step == step; });
}

const StalenessGate::Member* StalenessGate::TooOldAfter(int64_t step) const {
  int64_t position = 0;
  for (const Member& member : members_) {
    if (member.step == step) return nullptr;
    // All before it have to come first still, beside this update.
    if (updates_ - member.base + 1 + position > bound_) return &member;
    ++position;
  }
  return nullptr;
}

const StalenessGate::Member* StalenessGate::WaitedFor(const Line* line, int64_t step) const {
  if (line == &commits_) return TooOldAfter(step);
  return members_.empty() ? nullptr : &members_.front();
}

void StalenessGate::EndUpdate() {
  const auto it = Find(updater_);
  if (it != members_.end()) {
    const int64_t staleness = updates_ - it->base;
    max_staleness_ = std::max(max_staleness_, staleness);
    if (ledger_) {
      ledger_->Push(account_, {it->task, it->session, it->step}, UpdateFate::kApplied, staleness);
    }
  }
  ++updates_;
  updating_ = false;
}

void StalenessGate::Serve(Finished* finished) {
  if (!updating_) {
    auto next = commits_.begin();
    while (next != commits_.end() && TooOldAfter(next->step) != nullptr) ++next;
    if (next != commits_.end()) {
      Attempt attempt = std::move(*next);
      commits_.erase(next);
      updating_ = true;
      updater_ = attempt.step;
      End(std::move(attempt), OkStatus(), finished);
    }
  }
  while (!enters_.empty() && static_cast<int64_t>(members_.size()) <= bound_) {
    Attempt attempt = std::move(enters_.front());
    enters_.pop_front();
    members_.push_back({attempt.step, attempt.worker, updates_, attempt.task, attempt.session});
    End(std::move(attempt), OkStatus(), finished);
  }
}

}  // namespace millrace
