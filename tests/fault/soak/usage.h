// What a process takes of the machine.
#ifndef TESTS_FAULT_SOAK_USAGE_H_
#define TESTS_FAULT_SOAK_USAGE_H_

#include <sys/types.h>

#include <cstdint>

namespace millrace::testing {

struct Usage {
  int64_t memory_kib = 0;  // resident
  int64_t threads = 0, descriptors = 0;
};

// Zeros for a process that is gone.
Usage UsageOf(pid_t pid);

// Once it has no more threads and descriptors than `most`, or after a minute.
Usage SettledUsage(pid_t pid, const Usage& most);

}  // namespace millrace::testing

#endif  // TESTS_FAULT_SOAK_USAGE_H_
