// SPDX-License-Identifier: Apache-2.0
// The processor's own clock.
#ifndef EXECUTOR_ENGINE_CYCLE_COUNT_H_
#define EXECUTOR_ENGINE_CYCLE_COUNT_H_

#include <cstdint>

namespace millrace {

// Ticks of the processor, for costs.
inline uint64_t CycleCount() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  uint64_t ticks;  // of a slower clock than the processor's: costs are then understated
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#endif
}

}  // namespace millrace

#endif  // EXECUTOR_ENGINE_CYCLE_COUNT_H_
