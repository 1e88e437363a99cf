#include "collective/step_sequences.h"

#include <utility>

#include "base/errors.h"
#include "base/random.h"

namespace millrace {
namespace {

// TensorFlow's ids have 57 bits, and all masters must count alike.
constexpr int64_t kStepMask = (int64_t{1} << 57) - 1;

int64_t NewSequence() { return static_cast<int64_t>(RandomId() >> 7) | 1; }

}  // namespace

void StepSequences::Next(int64_t graph_key, const Refresh& refresh,
                         CancellationManager* cancellation, Done done) {
  Waiter waiter{MakeRef<Pending<StatusOr<int64_t>>>(std::move(done)), refresh};
  waiter.pending->Watch(cancellation, [graph_key](const Done& give_up) {
    give_up(errors::Cancelled("the step waited for the id of its collectives (graph key ",
                              graph_key,
                              "): another step with this key was running, or the "
                              "leader did not answer"));
  });
  {
    MutexLock lock(&mu_);
    Sequence& sequence = sequences_[graph_key];
    if (sequence.running) {
      sequence.waiters.push_back(std::move(waiter));
      return;
    }
    sequence.running = true;
  }
  Grant(graph_key, std::move(waiter));
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
  waiter.refresh(give, [pending = waiter.pending] { return !pending->claimed(); });
}

// The turn goes on to the first that still waits.
void StepSequences::GrantNext(int64_t graph_key) {
  Waiter waiter;
  {
    MutexLock lock(&mu_);
    Sequence& sequence = sequences_[graph_key];
    while (!sequence.waiters.empty() && sequence.waiters.front().pending->claimed()) {
      sequence.waiters.pop_front();
    }
    if (sequence.waiters.empty()) {
      sequence.running = false;
      return;
    }
    waiter = std::move(sequence.waiters.front());
    sequence.waiters.pop_front();
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

int64_t StepSequences::Peek(int64_t graph_key) {
  MutexLock lock(&mu_);
  Sequence& sequence = sequences_[graph_key];
  if (sequence.next == 0) sequence.next = NewSequence();
  return sequence.next;
}

}  // namespace millrace
