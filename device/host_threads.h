// SPDX-License-Identifier: Apache-2.0
// The threads on which a device runs functions of the host: callbacks of its streams, ends of
// steps. There are as many as functions run at once, up to a limit; an idle one stays for the next.
#ifndef DEVICE_HOST_THREADS_H_
#define DEVICE_HOST_THREADS_H_

#include <functional>
#include <memory>

namespace millrace {

// Thread-safe.
class HostThreads {
 public:
  // `on_end` is called whenever a function has ended, on its thread, with no lock held.
  explicit HostThreads(std::function<void()> on_end);
  // Stop, if nobody did.
  ~HostThreads();
  HostThreads(const HostThreads&) = delete;
  HostThreads& operator=(const HostThreads&) = delete;

  // Runs `fn` soon on one of the threads, or, after Stop, before this returns. `owner`, whose
  // going may end the device, is held until `on_end` has returned.
  void Post(std::function<void()> fn, std::shared_ptr<void> owner);

  // How many functions were posted and have not ended.
  int num_pending() const;
  bool IsIdle() const { return num_pending() == 0; }

  // Ends when all functions have; from one of the threads, when all others have.
  void Stop();

  // Whether the calling thread is one of some device.
  static bool IsCurrent();

 private:
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // a thread that calls Stop outlives the object
};

}  // namespace millrace

#endif  // DEVICE_HOST_THREADS_H_
