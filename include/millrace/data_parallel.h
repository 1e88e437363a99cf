// SPDX-License-Identifier: Apache-2.0
// Data-parallel training as Horovod's programs do it: every process runs the whole program, each
// with its own data, and gradients are averaged before they are applied.
//
//   MR_RETURN_IF_ERROR(millrace::dp::Init());
//   auto optimizer = millrace::dp::DistributedOptimizer(millrace::Adam({.learning_rate = rate}));
//   auto train = optimizer->Minimize(scope, loss, nullptr);
//   auto begin = millrace::dp::BroadcastVariables(scope, millrace::Variables(scope));
//   MR_RETURN_IF_ERROR(millrace::dp::ConfigureSession(&session_options));
//
// Calls before Init are FailedPrecondition. docs/from_horovod.md has each call beside Horovod's.
// All functions are thread-safe; all ranks must make the same calls in the same order. What the
// calls of ProcessGroup say, these say too.
#ifndef MILLRACE_DATA_PARALLEL_H_
#define MILLRACE_DATA_PARALLEL_H_

#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/collectives.h"
#include "millrace/graph.h"
#include "millrace/optimizers.h"
#include "millrace/session.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "millrace/variables.h"

namespace millrace::dp {

// Finds out which rank this process is, starts its server and waits for all others. A second one
// does nothing. What ProcessGroup::Create says.
Status Init(const ProcessGroupOptions& options = {});
// Whether Init has succeeded, and Shutdown has not been called since. Needs no Init.
bool IsInitialized();
// Waits for all others, as long as for any call, and stops the server: call it before main ends,
// or others may miss this rank in their last exchange. Init may follow.
Status Shutdown();

// Rank 0 leads: it is the one that prints and saves. Local ranks count the processes of a host.
StatusOr<int> Rank();
// Number of ranks.
StatusOr<int> Size();
// Position among the ranks on this host, from 0: which GPU of the host to take.
StatusOr<int> LocalRank();
// Number of ranks on this host.
StatusOr<int> LocalSize();
// All ranks.
StatusOr<std::shared_ptr<ProcessGroup>> World();
// As ProcessGroup::ConfigureSession, of all ranks.
Status ConfigureSession(SessionOptions* options);

// How gradients travel; means are divided before they are rounded.
using millrace::GradientCompression;

// How gradients are reduced over ranks.
struct GradientOptions {
  ReduceOp op = ReduceOp::kMean;                                 // or kSum
  GradientCompression compression = GradientCompression::kNone;  // kNone: as they are
  // Gradients of rows become dense ones; else the rows of all ranks are gathered.
  bool sparse_as_dense = false;
  // Lets ranks Join while others still train. Costs a small exchange in each step.
  bool allow_join = false;
  std::shared_ptr<ProcessGroup> group{};  // null: all ranks
};

// As Gradients(), reduced over ranks, in packs of one type that
// CommunicationOptions::bytes_per_pack makes. Those that are not valid must not be valid at any
// rank. InvalidArgument for other reductions than the two.
StatusOr<std::vector<Output>> DistributedGradients(
    const Scope& scope, std::span<const Output> ys, std::span<const Output> xs,
    const GradientOptions& options = {},
    std::source_location where = std::source_location::current());
// The same of gradients that there are already, of rows too.
StatusOr<std::vector<GradientAndVariable>> AllReduceGradients(
    const Scope& scope, std::span<const GradientAndVariable> gradients,
    const GradientOptions& options = {},
    std::source_location where = std::source_location::current());
// An optimizer whose ComputeGradients gives the reduced ones: what else it does, as Minimize, is
// the inner one's. Errors before Init are those of ComputeGradients.
std::unique_ptr<Optimizer> DistributedOptimizer(std::unique_ptr<Optimizer> inner,
                                                const GradientOptions& options = {});

// An op that gives the variables, of models and of optimizers (Optimizer::variables), the values
// that they have at a rank. To be run by all ranks, once variables have values at that rank; its
// step fails at all ranks, naming the variable, if one has none.
StatusOr<Operation> BroadcastVariables(
    const Scope& scope, std::span<const Variable> variables, int root_rank = 0,
    const std::shared_ptr<ProcessGroup>& group = nullptr,
    std::source_location where = std::source_location::current());

// Of tensors, by all ranks: as ProcessGroup's.
StatusOr<Tensor> AllReduce(const Tensor& value, ReduceOp op = ReduceOp::kMean,
                           std::string_view name = "");
// The same of several tensors, which travel together.
StatusOr<std::vector<Tensor>> AllReduce(std::span<const Tensor> values,
                                        ReduceOp op = ReduceOp::kMean, std::string_view name = "");
// Rows of all ranks, one behind the other in the order of ranks; kSum or kMean.
StatusOr<TensorRows> AllReduce(const TensorRows& rows, ReduceOp op = ReduceOp::kMean,
                               std::string_view name = "");
// The values of all ranks, one behind the other along the first axis. InvalidArgument for scalars.
StatusOr<Tensor> AllGather(const Tensor& value, std::string_view name = "");
// This rank's rows of the reduction; the first ranks have one more where rows do not divide.
StatusOr<Tensor> ReduceScatter(const Tensor& value, ReduceOp op = ReduceOp::kMean,
                               std::string_view name = "");
// Rank r gets the next splits[r] rows; without splits, equal parts, which must divide.
StatusOr<AllToAllResult> AllToAll(const Tensor& value, std::span<const int64_t> splits = {},
                                  std::string_view name = "");
// The value at `root_rank`; at other ranks `value` gives the type and shape only.
StatusOr<Tensor> Broadcast(const Tensor& value, int root_rank = 0, std::string_view name = "");
// Returns when all ranks have come.
Status Barrier();
// Of an outcome of a step.
Status Explain(const Status& error);

// Whether the loop of training is to end with the step that it has made: true at all ranks, in the
// same call, after a notice (millrace/preemption.h) to any of them, which is one for each then, so
// that all save, and end with PreemptionExitCode. A small exchange, as Barrier is: all ranks call
// it, after every step or after every so many. Null: all ranks. Errors are those of Barrier.
StatusOr<bool> ShouldStop(const std::shared_ptr<ProcessGroup>& group = nullptr);

// For a rank that has no more data: takes part with zeros in the steps of the others until all have
// joined, and returns the rank that joined last. Gradients with `allow_join` must have been made,
// once, and steps must exchange nothing else. A mean still divides by all ranks. FailedPrecondition
// if gradients were made otherwise.
StatusOr<int> Join();

}  // namespace millrace::dp

#endif  // MILLRACE_DATA_PARALLEL_H_
