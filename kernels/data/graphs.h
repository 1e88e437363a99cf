// SPDX-License-Identifier: Apache-2.0
// Data sets as graphs that are data. Of this folder alone.
#ifndef KERNELS_DATA_GRAPHS_H_
#define KERNELS_DATA_GRAPHS_H_

#include <cstdint>

#include "kernels/data/dataset.h"
#include "kernels/kernel_context.h"
#include "proto/graph.pb.h"

namespace millrace {

// What becomes of functions whose effects a graph cannot carry.
enum ExternalState : int64_t { kStateWarns = 0, kStateIgnored = 1, kStateFails = 2 };

// The graph that makes `dataset` again, with the functions that it calls: a node _Retval called
// "dataset" takes it. FailedPrecondition: functions have effects, and the policy is kStateFails.
// Unimplemented: a stage cannot be written.
StatusOr<pb::GraphDef> WriteGraph(const DatasetValue& dataset, int64_t policy, bool strip_devices);

// A variant tensor that holds what such a graph gives. Blocks. InvalidArgument if that is no data
// set; what FunctionRunner::MakeGraph and the run of the graph say.
StatusOr<Tensor> MakeFromGraph(KernelContext& ctx, const pb::GraphDef& graph);

}  // namespace millrace

#endif  // KERNELS_DATA_GRAPHS_H_
