// SPDX-License-Identifier: Apache-2.0
#include "collective/step_sequences.h"

#include <utility>

#include "base/errors.h"
#include "base/random.h"

namespace millrace {
namespace {

// TensorFlow's ids have 57 bits, and all masters must count alike.
constexpr int64_t kStepMask = (int64_t{1} << 57) - 1;

Status TooManyKeys() {
  return errors::ResourceExhausted("step ids of ", StepSequences::kMostKeys,
                                   " graph keys with collectives are kept here, the most there "
                                   "may be");
}

int64_t NewSequence() { return static_cast<int64_t>(RandomId() >> 7) | 1; }

}  // namespace

void StepSequences::Next(int64_t graph_key, const Refresh& refresh,
                         CancellationManager* cancellation, Done done) {
  Waiter waiter{MakeRef<Pending<StatusOr<int64_t>>>(std::move(done)), refresh,
                std::make_shared<CancellationManager>()};
  waiter.pending->Watch(cancellation, [graph_key, wanted = waiter.wanted](const Done& give_up) {
    wanted->StartCancel(errors::Cancelled("the id is not wanted any more"));
    give_up(errors::Cancelled("the step waited for the id of its collectives (graph key ",
                              graph_key,
                              "): another step with this key was running, or the "
                              "leader did not answer"));
  });
  bool is_full = false;
  {
    MutexLock lock(&mu_);
    Sequence* const sequence = Find(graph_key);
    is_full = sequence == nullptr;
    if (!is_full && sequence->running) {
      sequence->waiters.push_back(std::move(waiter));
      return;
    }
    if (!is_full) sequence->running = true;
  }
  if (!is_full) return Grant(graph_key, std::move(waiter));
  if (waiter.pending->Claim()) waiter.pending->Finish(TooManyKeys());
}

StepSequences::Sequence* StepSequences::Find(int64_t graph_key) {
  const auto it = sequences_.find(graph_key);
  if (it != sequences_.end()) return &it->second;
  if (sequences_.size() >= kMostKeys) return nullptr;
  return &sequences_[graph_key];
}

// This waiter has the turn.
void StepSequences::Grant(int64_t graph_key, Waiter waiter) {
  int64_t next = 0;
  {
    MutexLock lock(&mu_);
    Sequence& sequence = sequences_[graph_key];
    if (sequence.next == 0 && waiter.refresh == nullptr) sequence.next = NewSequence();
    next = sequence.next;
  }
  const auto give = [this, graph_key, pending = waiter.pending](StatusOr<int64_t> id) {
    if (id.ok()) {
      MutexLock lock(&mu_);
      sequences_[graph_key].next = *id;
    }
    const bool taken = pending->Claim();
    if (!taken || !id.ok()) GrantNext(graph_key);
    if (taken) pending->Finish(std::move(id));
  };
  if (next != 0) return give(next);
  waiter.refresh(give, waiter.wanted);
}

// The turn goes on to the first that still waits.
void StepSequences::GrantNext(int64_t graph_key) {
  Waiter waiter;
  {
    MutexLock lock(&mu_);
    Sequence& sequence = sequences_[graph_key];
    std::erase_if(sequence.waiters, [](const Waiter& other) { return other.pending->claimed(); });
    if (sequence.waiters.empty()) {
      sequence.running = false;
      return;
    }
    waiter = std::move(sequence.waiters.front());
    sequence.waiters.erase(sequence.waiters.begin());
  }
  Grant(graph_key, std::move(waiter));
}

void StepSequences::Retire(int64_t graph_key, int64_t step_id, bool succeeded) {
  {
    MutexLock lock(&mu_);
    Sequence& sequence = sequences_[graph_key];
    if (sequence.next == step_id) {
      const int64_t after = (step_id + 1) & kStepMask;
      sequence.next = succeeded ? after : 0;
    }
  }
  GrantNext(graph_key);
}

StatusOr<int64_t> StepSequences::Peek(int64_t graph_key) {
  MutexLock lock(&mu_);
  Sequence* const sequence = Find(graph_key);
  if (sequence == nullptr) return TooManyKeys();
  if (sequence->next == 0) sequence->next = NewSequence();
  return sequence->next;
}

}  // namespace millrace
