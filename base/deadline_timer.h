// SPDX-License-Identifier: Apache-2.0
// Calls back when a deadline passes: what makes an asynchronous call end in time.
#ifndef BASE_DEADLINE_TIMER_H_
#define BASE_DEADLINE_TIMER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/notification.h"

namespace millrace {

// A deadline for a whole step: of a long timeout the clock that is read is a cheap one, some
// milliseconds behind.
Deadline StepDeadline(std::chrono::milliseconds timeout);

// Thread-safe. One thread, started with the first deadline; callbacks run on it one after the
// other and must not block.
class DeadlineTimer {
 public:
  using Token = uint64_t;
  static constexpr Token kNone = 0;

  DeadlineTimer() = default;
  // Drops what is still scheduled. Not from a callback.
  ~DeadlineTimer();
  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;

  // Runs `callback` once `deadline` has passed. kNone, and nothing kept, for kNoDeadline.
  Token Schedule(Deadline deadline, std::function<void()> callback);
  // True if the callback will never run. Otherwise it has run, or is running right now and is
  // not waited for: what it uses must be kept alive by the callback itself. kNone is true.
  bool Cancel(Token token);

  // The timer of the process. Never destroyed.
  static DeadlineTimer& Global();

 private:
  using Entries = std::map<std::pair<Deadline, Token>, std::function<void()>>;
  using Deadlines = std::map<Token, Deadline>;
  // Of a cancelled deadline, kept so that the next one takes no memory.
  struct Nodes {
    Entries::node_type entry;
    Deadlines::node_type deadline;
  };
  static constexpr std::size_t kMaxSpare = 64;

  void Run();

  Mutex mu_;
  CondVar wake_;
  Entries entries_ ABSL_GUARDED_BY(mu_);
  Deadlines deadlines_ ABSL_GUARDED_BY(mu_);
  std::vector<Nodes> spare_ ABSL_GUARDED_BY(mu_);
  Deadline sleeps_until_ ABSL_GUARDED_BY(mu_) = kNoDeadline;
  Token next_token_ ABSL_GUARDED_BY(mu_) = 1;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // BASE_DEADLINE_TIMER_H_
