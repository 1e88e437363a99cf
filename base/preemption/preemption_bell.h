// SPDX-License-Identifier: Apache-2.0
// What a signal handler rings, and a thread hears.
#ifndef BASE_PREEMPTION_PREEMPTION_BELL_H_
#define BASE_PREEMPTION_PREEMPTION_BELL_H_

namespace millrace {

// From the first OnPreemption on its thread hears it; before that nothing happens.
// Async-signal-safe.
void RingPreemptionBell();

}  // namespace millrace

#endif  // BASE_PREEMPTION_PREEMPTION_BELL_H_
