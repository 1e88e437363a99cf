// SPDX-License-Identifier: Apache-2.0
// Somebody else's work on one of the processors.
#ifndef BENCH_EXECUTOR_BUSY_CORE_H_
#define BENCH_EXECUTOR_BUSY_CORE_H_

#include <sys/types.h>

namespace millrace {

// A process that spins on the last processor that this one may use, as long as the object lives.
// Ends the program if it cannot be started.
class BusyCore {
 public:
  BusyCore();
  ~BusyCore();
  BusyCore(const BusyCore&) = delete;
  BusyCore& operator=(const BusyCore&) = delete;

 private:
  pid_t child_ = -1;
};

}  // namespace millrace

#endif  // BENCH_EXECUTOR_BUSY_CORE_H_
