// SPDX-License-Identifier: Apache-2.0
// The steps of a task: how many, how long, and the last and slowest of them one by one.
#ifndef OBSERVE_STEP_LOG_H_
#define OBSERVE_STEP_LOG_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "observe/metrics.h"

namespace millrace {

// One step of a session of this task's master, or one run of an eager context of the task.
struct StepRecord {
  // What one task did for it.
  struct Part {
    std::string task;
    int64_t begin_nanos = 0, end_nanos = 0;  // steady clock of this task; 0: it has not answered
  };
  // What this task waited for while it ran its own part: the longest wait of all for that task.
  struct Wait {
    std::string task;
    int64_t nanos = 0;
  };

  std::string session;
  int64_t request_id = 0;  // of the client's call; 0: it has none
  int64_t step_id = 0;     // 0: the step needed no number: it was run without other tasks
  // Durations are between readings of the steady clock: the wall clock may be set meanwhile, and
  // only says when the step began.
  int64_t begin_nanos = 0, end_nanos = 0;  // steady clock; end 0: it runs
  int64_t begin_wall_nanos = 0;            // wall clock, of the Unix epoch
  int64_t examples = 0;
  std::string error;  // "": it went well
  std::vector<Part> parts{};
  std::vector<Wait> waits{};

  int64_t nanos() const { return end_nanos - begin_nanos; }
  // Of a step that has ended: nanoseconds of the Unix epoch, as far from the begin as it took.
  int64_t end_wall_nanos() const { return begin_wall_nanos + nanos(); }
  // What the step would have been shorter by, had its slowest part been as fast as the next one;
  // the part's index, -1 without any.
  int Slowest(int64_t* cost_nanos) const;
  // A sentence with the culprit first; "" if there is none to name.
  std::string Culprit() const;
};

// Thread-safe. Costs a step two short locks, and what was said of it memory.
class StepLog {
 public:
  static constexpr std::size_t kLast = 50, kSlowest = 20;
  using Clock = int64_t (*)();

  // The clocks are for tests, which let the wall clock jump.
  explicit StepLog(Clock steady = &SteadyNanos, Clock wall = &WallNanos)
      : steady_(steady), wall_(wall) {}

  Counter begun, ended, failed, examples;
  Histogram latency;

  // A step of the session, or of an eager context, begins. What is begun has to be ended. `step_id`
  // 0: its parts will tell.
  std::shared_ptr<StepRecord> Begin(std::string session, int64_t examples, int64_t step_id = 0,
                                    int64_t request_id = 0);
  void End(const std::shared_ptr<StepRecord>& step, std::string error);

  // A part of a step with a number begins at a task. The step is the one of the request that the
  // part was sent for. Without one (0) a number says nothing of the session's call that it was made
  // for: if several of the session are under way, it is nobody's.
  void PartBegins(std::string_view session, int64_t step_id, const std::string& task,
                  int64_t request_id = 0);
  void PartEnds(int64_t step_id, std::string_view task, int64_t request_id = 0);
  // This task waited for a value of another one.
  void Waited(int64_t step_id, std::string_view task, int64_t nanos);

  // The last first; the slowest first; those that run, the oldest first.
  std::vector<StepRecord> Last() const;
  std::vector<StepRecord> Slowest() const;
  std::vector<StepRecord> Running() const;

 private:
  using Shared = std::shared_ptr<StepRecord>;
  // That runs and has the number, and is not known to be of another request; null: there is none.
  Shared FindNumbered(int64_t step_id, int64_t request_id = 0) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // That runs without a number yet, and can only be the one of the request.
  Shared FindUnnumbered(std::string_view session, int64_t request_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Clock steady_, wall_;
  mutable Mutex mu_;
  std::vector<Shared> running_ ABSL_GUARDED_BY(mu_);
  std::deque<Shared> last_ ABSL_GUARDED_BY(mu_);
  std::multimap<int64_t, Shared> slowest_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // OBSERVE_STEP_LOG_H_
