// SPDX-License-Identifier: Apache-2.0
// Which parts of a run become one launch of their accelerator, and why others do not.
#ifndef PLANNER_CAPTURES_H_
#define PLANNER_CAPTURES_H_

#include <vector>

#include "base/options/engine_options.h"
#include "kernels/kernel_registry.h"
#include "ops/op_registry.h"
#include "planner/plan_report.h"
#include "planner/prepared_run.h"
#include "proto/config.pb.h"

namespace millrace {

// By device, in order of names; empty if no node is on an accelerator. Registers the parts as their
// workers would, on devices that exist on paper only: with the same rewrites and kernels, and the
// same judgement, as tasks with `engine` do. What depends on how steps go (shapes that change,
// variables that move) is not in it. Each task is judged by its own part: if that cannot be
// registered, as for want of a kernel, the reason is the obstacle of all its accelerators.
std::vector<CaptureForecast> ForecastCaptures(const PlannedRun& run, const OpRegistry& ops,
                                              const KernelRegistry& kernels,
                                              const EngineOptions& engine = {},
                                              const pb::GraphOptions& options = {});

}  // namespace millrace

#endif  // PLANNER_CAPTURES_H_
