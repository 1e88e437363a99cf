// SPDX-License-Identifier: Apache-2.0
// Time. Wall times are for people and traces, steady ones for waits and measurements.
#ifndef BASE_CLOCK_H_
#define BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace millrace {

inline int64_t WallNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}
inline int64_t WallMicros() { return WallNanos() / 1000; }
inline int64_t SteadyNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace millrace

#endif  // BASE_CLOCK_H_
