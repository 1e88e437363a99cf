// SPDX-License-Identifier: Apache-2.0
// Which programs of accelerators are the same in every step, so that what they enqueue can be
// recorded once; and in which order.
#ifndef EXECUTOR_CAPTURE_CAPTURE_PLAN_H_
#define EXECUTOR_CAPTURE_CAPTURE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "executor/compiled_graph.h"
#include "millrace/status.h"

namespace millrace {

// A program in three pieces: it receives, computes without waiting for anybody, and sends. Then it
// may have to wait for others, as a NoOp does that stands for a whole step.
struct CapturePlan {
  struct Head {
    int32_t node = -1;
    std::string key;  // in the rendezvous
    bool on_device = false;
  };
  std::vector<Head> heads;
  // Of what is between, in an order in which variables are changed as late as can be, and only
  // those reads come later that are sent.
  std::vector<int32_t> order;
  std::vector<int32_t> tails;  // sends
  // Receives that nothing waits for but NoOps at the end of the step.
  std::vector<Head> last;
  // By node: the send of this very program that a receive in `order` takes its value from, which
  // is one in host memory; -1 for all others.
  std::vector<int32_t> local_send;
};

// For parts[index], of the parts that one worker runs in a step. FailedPrecondition with the
// reason if it cannot be recorded: control flow, kernels that do not say that they can
// (kernels/capturable_kernel.h), values that come back from the host or from another part within
// the step, or too little to be worth it.
StatusOr<CapturePlan> PlanCapture(std::span<const CompiledGraph* const> parts, std::size_t index);

}  // namespace millrace

#endif  // EXECUTOR_CAPTURE_CAPTURE_PLAN_H_
