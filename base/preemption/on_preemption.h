// SPDX-License-Identifier: Apache-2.0
// How waits end when the process is to end: whoever waits for something else is woken by a call.
//
//   Notification over;
//   const OnPreemption wake([&] { over.Notify(); });
//   if (!over.WaitUntil(deadline)) ...
#ifndef BASE_PREEMPTION_ON_PREEMPTION_H_
#define BASE_PREEMPTION_ON_PREEMPTION_H_

#include <cstdint>
#include <functional>

namespace millrace {

// Calls `action` once, soon after a notice of millrace/preemption.h, also after one that was before
// this object; on a thread that all of these share, so that it must be short, and neither make nor
// destroy such objects. Thread-safe. Where there can be no such thread, which is logged, nothing is
// called.
class OnPreemption {
 public:
  explicit OnPreemption(std::function<void()> action);
  // Afterwards the action does not run, and is not going to: whoever destroys this holds no lock
  // that the action takes.
  ~OnPreemption();
  OnPreemption(const OnPreemption&) = delete;
  OnPreemption& operator=(const OnPreemption&) = delete;

 private:
  const int64_t id_;
};

}  // namespace millrace

#endif  // BASE_PREEMPTION_ON_PREEMPTION_H_
