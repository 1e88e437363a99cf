// SPDX-License-Identifier: Apache-2.0
// The next steps of a task's master, recorded on demand, whoever runs them.
#ifndef DISTRIBUTED_RUNTIME_PAGES_STEP_TRACER_H_
#define DISTRIBUTED_RUNTIME_PAGES_STEP_TRACER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/cancellation.h"
#include "base/deadline_timer.h"
#include "base/mutex.h"
#include "millrace/status.h"
#include "proto/observe.pb.h"

namespace millrace {

// Thread-safe. While nobody traces, a step costs one look at active().
class StepTracer {
 public:
  using Steps = std::vector<pb::TracedStep>;
  using Done = std::function<void(StatusOr<Steps>)>;
  static constexpr int kMostSteps = 1000;

  StepTracer() : state_(std::make_shared<State>()) {}
  ~StepTracer() { Stop(); }
  StepTracer(const StepTracer&) = delete;
  StepTracer& operator=(const StepTracer&) = delete;

  // Ends what is under way, and refuses what comes.
  void Stop();

  // Records the next `num_steps`. `done` gets them when they have ended; at the deadline, those
  // that have. FailedPrecondition if a trace is under way already, Unavailable once stopped,
  // InvalidArgument for another number than 1 to kMostSteps. Cancelled, and free for the next
  // one, once `cancellation` (not needed after `done` was called; may be null) says so.
  void Start(int num_steps, Deadline deadline, Done done,
             CancellationManager* cancellation = nullptr);
  bool active() const { return state_->active.load(std::memory_order_relaxed); }

  // A part of a step is about to begin at a task: whether it shall be recorded. If so PartEnds
  // follows.
  bool PartBegins(const std::string& session, int64_t step_id, int64_t request_id = 0);
  void PartEnds(int64_t step_id, pb::TracedPart part);
  // A step that the master ran by itself.
  void AddWhole(const std::string& session, int64_t request_id, pb::TracedPart part);
  // A step has ended, and all that was said of it.
  void StepEnds();

 private:
  struct State {
    std::atomic<bool> active{false};
    Mutex mu;
    std::size_t wanted ABSL_GUARDED_BY(mu) = 0;
    int pending ABSL_GUARDED_BY(mu) = 0;  // parts that have begun
    uint64_t generation ABSL_GUARDED_BY(mu) = 0;
    Steps steps ABSL_GUARDED_BY(mu);
    Done done ABSL_GUARDED_BY(mu);
    bool stopped ABSL_GUARDED_BY(mu) = false;
    DeadlineTimer::Token timer ABSL_GUARDED_BY(mu) = DeadlineTimer::kNone;
    CancellationManager* cancellation ABSL_GUARDED_BY(mu) = nullptr;
    CancellationManager::Token cancel_token ABSL_GUARDED_BY(mu) = 0;
  };
  // Answers, if the trace of that generation is still under way (0: whichever).
  static void Finish(State* state, uint64_t generation, const Status& status);
  // Begins a generation that ends when it is cancelled. False if it is already.
  static bool HeedCancellation(const std::shared_ptr<State>& state,
                               CancellationManager* cancellation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu);

  const std::shared_ptr<State> state_;  // kept by the timer as well
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_PAGES_STEP_TRACER_H_
