// SPDX-License-Identifier: Apache-2.0
// What the executor's bench prints: a row for each workload.
#ifndef BENCH_EXECUTOR_ROW_H_
#define BENCH_EXECUTOR_ROW_H_

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace millrace {

struct Row {
  std::string what, unit;
  std::vector<std::string> peers;  // names of the same workload in what peers print
  std::function<double()> measure;
  // So many rows before this one is the same workload in one thread; 0: none is.
  int alone = 0;
};

// Nanoseconds of each of `count` calls.
inline double NanosPer(int count, const std::function<void()>& call) {
  const int64_t start = SteadyNanos();
  for (int i = 0; i < count; ++i) call();
  return static_cast<double>(SteadyNanos() - start) / count;
}

}  // namespace millrace

#endif  // BENCH_EXECUTOR_ROW_H_
