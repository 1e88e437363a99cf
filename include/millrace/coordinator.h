// SPDX-License-Identifier: Apache-2.0
// The threads that a training program runs beside its steps, and how all of them stop together.
#ifndef MILLRACE_COORDINATOR_H_
#define MILLRACE_COORDINATOR_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/status.h"

namespace millrace {

// Who asks first stops all, and what he gives as the cause is what Join returns. Thread-safe.
class Coordinator {
 public:
  Coordinator();
  // Asks to stop. Threads that have not ended by then are left to themselves.
  ~Coordinator();

  // The first cause is kept. OutOfRange, the end of the input, is no error and counts as OK.
  void RequestStop(const Status& cause = OkStatus());
  // Whether a stop was asked for. Does not block: threads ask it between two pieces of work.
  bool ShouldStop() const;
  // The cause; OK without one, and before a stop was asked for.
  Status status() const;
  // True once a stop was asked for; false if `limit` passed first.
  bool WaitForStop(std::chrono::milliseconds limit) const;

  // Runs `body` on a thread of its own. An error that it returns, or what it throws, asks all to
  // stop; after a stop was asked for, it is what the stop has brought about and is dropped.
  // ResourceExhausted if there can be no more threads.
  Status StartThread(std::string name, std::function<Status()> body);
  // Calls `body` at once and then every `interval` until the stop.
  Status StartLoop(std::string name, std::chrono::milliseconds interval,
                   std::function<Status()> body);
  // Waits for the stop, then up to `grace` for the threads to end. The cause of the stop, if it is
  // an error; otherwise DeadlineExceeded naming the threads that still run: they are left to
  // themselves, and what they use must live on.
  Status Join(std::chrono::milliseconds grace = std::chrono::milliseconds(120'000));
  // Names of the threads that have not ended.
  std::vector<std::string> running() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the threads share it
};

}  // namespace millrace

#endif  // MILLRACE_COORDINATOR_H_
