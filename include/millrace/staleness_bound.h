// SPDX-License-Identifier: Apache-2.0
// Asynchronous training in which no update is too old.
#ifndef MILLRACE_STALENESS_BOUND_H_
#define MILLRACE_STALENESS_BOUND_H_

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>

#include "millrace/graph.h"
#include "millrace/status.h"
#include "millrace/training.h"
#include "millrace/variables.h"

namespace millrace {

// How old an update may be, and who makes it.
struct StalenessBoundOptions {
  // No update is applied that was computed from variables which more than so many updates of
  // others have changed since. At 0 workers take turns; from the number of workers less one on,
  // none waits before it computes, only, when it is further ahead, before it applies.
  int64_t bound = 0;
  std::string worker{};  // whom others name that have waited for this worker in vain
};

// Asynchronous updates, one after the other, within a bound: a worker that is further ahead waits
// with its update until the slowest has made its own. A step that fails, or whose worker is gone,
// is not waited for. Every read of a trained variable that the graph has by then takes part, in
// evaluations too. The bound is kept beside the global step, by servers of Millrace; all workers
// give the same one (InvalidArgument when a step runs otherwise).
class StalenessBound : public Optimizer {
 public:
  // Adds no nodes yet. `inner` makes the updates; what cannot be is the error of ApplyGradients.
  StalenessBound(std::unique_ptr<Optimizer> inner, const StalenessBoundOptions& options);
  ~StalenessBound() override;

  // InvalidArgument without an inner optimizer, a global step, or with a negative bound.
  StatusOr<Operation> ApplyGradients(
      const Scope& scope, std::span<const GradientAndVariable> gradients,
      const Variable* global_step,
      std::source_location where = std::source_location::current()) override;

 private:
  const std::unique_ptr<Optimizer> inner_;
  const StalenessBoundOptions options_;
};

}  // namespace millrace

#endif  // MILLRACE_STALENESS_BOUND_H_
