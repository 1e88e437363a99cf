// SPDX-License-Identifier: Apache-2.0
// Steps that did not end although they were told to: what their callers are told.
//
// A step whose deadline has passed is cancelled, and has kOverdueGrace to end by itself. A kernel
// that heeds no cancellation cannot be ended: its caller gets DeadlineExceeded with what this says
// of it, and the step is left to the threads that still run it. They own its memory; it is freed
// when the last of them comes back.
#ifndef WORKER_OVERDUE_H_
#define WORKER_OVERDUE_H_

#include <cstdint>
#include <string>

#include "base/cancellation.h"
#include "session/direct_run.h"  // kOverdueGrace

namespace millrace {

// "it still runs {{node n}}, op O on DEVICE, in thread NAME (ID), for 0.6 s", for every thread
// that runs a node of the step that `step` cancels; or that none does. `step` must not go
// meanwhile.
std::string DescribeOverdue(const CancellationManager* step);

// Warns that the step goes on without its caller, or that the caller's own thread is in it.
// `request_id` as RunGraphArgs'.
void LogOverdue(int64_t step_id, int64_t request_id, const std::string& description);

}  // namespace millrace

#endif  // WORKER_OVERDUE_H_
