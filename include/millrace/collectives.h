// SPDX-License-Identifier: Apache-2.0
// Collectives between the tasks of a cluster: each task is a rank, all of which make the same calls
// in the same order.
//
//   auto group = millrace::ProcessGroup::Create();  // as TF_CONFIG, mpirun, torchrun, ... say
//   auto sum = (*group)->AllReduce(millrace::ReduceOp::kSum, tensor);
//
// Before ranks exchange tensors they compare what each of them calls. Where that differs, all of
// them get the same InvalidArgument, which names the ranks that differ and both calls, and the
// group can be used further. docs/collectives.md is the guide.
#ifndef MILLRACE_COLLECTIVES_H_
#define MILLRACE_COLLECTIVES_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/cluster_resolver.h"
#include "millrace/graph.h"
#include "millrace/server.h"
#include "millrace/session.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

struct GroupState;  // ranks/group_state.h

// There is no mean of integers, which would have to be rounded: InvalidArgument, at all ranks.
enum class ReduceOp { kSum, kMean, kMin, kMax, kProduct };
// "sum", "mean", ...
std::string_view ReduceOpName(ReduceOp op);

// How tensors travel. kAuto: NCCL between GPUs where that can be, else over the network, which
// kRing always takes.
enum class CommunicationImplementation { kAuto, kRing, kNccl };

// How gradients of 32 and 64 bits travel: rounded to 16 bits by who sends them, added in float in
// the order of the ranks, and rounded once more: half, or a quarter, of the bytes.
enum class GradientCompression { kNone, kFp16, kBfloat16 };

// How collectives of a group pack their tensors, wait and travel; the same at all ranks.
struct CommunicationOptions {
  // Tensors that are summed between workers travel together in packs: a pack is closed when it has
  // more than so many bytes. 0: in graphs 1 MiB, so that packs leave while others are computed; of
  // a call with tensors one pack of everything. Sums have the same bits whatever the packs.
  // Negative: InvalidArgument.
  int64_t bytes_per_pack = 0;
  // Of one exchange; DeadlineExceeded names those that did not come. 0: the step's own limit; of a
  // call with tensors a minute.
  double timeout_seconds = 0;
  // kNccl without a GPU is InvalidArgument.
  CommunicationImplementation implementation = CommunicationImplementation::kAuto;
  // Of gradients that Model::Fit sums between the workers of a strategy; those of rows (embeddings)
  // travel as they are. What a ProcessGroup is given to reduce is never rounded:
  // dp::GradientOptions has the same for ranks.
  GradientCompression compression = GradientCompression::kNone;
};

// Which rank of which cluster this process is, and how it reaches the others.
struct ProcessGroupOptions {
  // The cluster and which of its chiefs and workers this process is; empty: what
  // ResolveFromEnvironment says. Without a cluster there is one rank.
  ResolvedTask task{};
  // The server of this task; "": one that the group starts and keeps.
  std::string target{};
  // What that own server is made with: credentials, `insecure`, cluster_id ("": that of
  // MILLRACE_CLUSTER_ID), peer_timeout. Its cluster, task and devices are not looked at.
  ServerOptions server{};
  // Of this task, where nodes of collectives are put: "/device:GPU:0"; "": CPU 0.
  std::string device{};
  CommunicationOptions communication{};  // of all collectives of the group and its subsets
  // How long Create waits for the others.
  std::chrono::milliseconds start_timeout{60'000};
};

// Values of some rows: row i of `values` is row indices[i] of what they stand for.
struct TensorRows {
  Tensor values, indices;  // [n, ...]; int32 or int64 of [n]
};

// What a rank has after ProcessGroup::AllToAll.
struct AllToAllResult {
  Tensor value;                          // what the ranks sent here, in their order
  std::vector<int64_t> received_splits;  // rows from each
};

// Some ranks of a cluster. Thread-safe: calls with tensors take place one after the other.
//
// Calls with tensors block: DeadlineExceeded after communication.timeout_seconds and Unavailable
// for a lost task say of each rank that did not come where it is. InvalidArgument, at all ranks,
// if one rank's arguments cannot be, or ranks differ in what they call; `name`, if it is not
// empty, must be the same everywhere too. Lists travel together. FailedPrecondition at a rank that
// is not in the group.
class ProcessGroup {
 public:
  // All chiefs and workers of the cluster. Waits until all are there. InvalidArgument for options
  // that cannot be; what Server::Start says if one is started.
  static StatusOr<std::shared_ptr<ProcessGroup>> Create(const ProcessGroupOptions& options = {});
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  // Position among `ranks()`; -1 if this process is none of them.
  int rank() const;
  int size() const;  // number of members, at least 1
  // Those of all ranks of the cluster that are members.
  const std::vector<int>& ranks() const;
  // How many ranks before this one, and how many in all, have the same host.
  int local_rank() const;
  int local_size() const;  // how many of all ranks have this one's host, this one among them
  // Of all ranks: who writes for all.
  bool is_leader() const { return rank() == 0; }
  // "grpc://host:port" where sessions of this process are opened; "" for a cluster of one.
  std::string target() const;
  // Opens sessions there, which see the devices of this task alone. InvalidArgument if the options
  // name another target.
  Status ConfigureSession(SessionOptions* options) const;

  // A group of some ranks. All ranks call it on the group of all, those too that will not be in the
  // new one. InvalidArgument for ranks that do not exist, are named twice or are not given in
  // order; FailedPrecondition on a group that is not that of all; ResourceExhausted beyond 250
  // groups.
  StatusOr<std::shared_ptr<ProcessGroup>> Subset(std::span<const int> ranks);

  // ---- With tensors ----------------------------------------------------------------
  // All ranks get the same bits. Of float, double, half, bfloat16, int32 and int64; means of floats
  // alone.
  StatusOr<Tensor> AllReduce(ReduceOp op, const Tensor& value, std::string_view name = "");
  // The same of each of a list, in its order.
  StatusOr<std::vector<Tensor>> AllReduce(ReduceOp op, std::span<const Tensor> values,
                                          std::string_view name = "");
  // Sums or means of rows: those of all ranks, in their order; a row may be named several times.
  StatusOr<TensorRows> AllReduce(ReduceOp op, const TensorRows& rows, std::string_view name = "");
  // The values of all ranks one behind the other along the first axis, which may be of another size
  // at each rank. Of all types of fixed size. InvalidArgument for scalars.
  StatusOr<Tensor> AllGather(const Tensor& value, std::string_view name = "");
  // The same of each of a list, in its order.
  StatusOr<std::vector<Tensor>> AllGather(std::span<const Tensor> values,
                                          std::string_view name = "");
  // This rank's rows of the reduction: an equal part, and one more for each of the first ranks
  // where rows do not divide. Costs what AllReduce does.
  StatusOr<Tensor> ReduceScatter(ReduceOp op, const Tensor& value, std::string_view name = "");
  // The first splits[0] rows go to rank 0, the next splits[1] to rank 1; {}: equal parts, which
  // must divide. Costs what AllGather does: every rank gets everything and keeps its part.
  StatusOr<AllToAllResult> AllToAll(const Tensor& value, std::span<const int64_t> splits = {},
                                    std::string_view name = "");
  // The values of a rank. Others give values of the same types and shapes.
  StatusOr<Tensor> Broadcast(const Tensor& value, int root = 0, std::string_view name = "");
  // The same of each of a list, in its order.
  StatusOr<std::vector<Tensor>> Broadcast(std::span<const Tensor> values, int root = 0,
                                          std::string_view name = "");
  // Returns when all ranks have come.
  Status Barrier(std::string_view name = "");

  // ---- In graphs -------------------------------------------------------------------
  // Nodes that exchange values when a step runs them, of all ranks in the same step. All ranks add
  // the same nodes in the same order, which these calls compare at once, by waiting for each
  // other: what differs is InvalidArgument in every graph's status. Shapes must be known.
  //
  // Sum and mean over ranks have a derivative; other reductions do not.
  Output AllReduce(const Scope& scope, ReduceOp op, const Output& value, std::string_view name = "",
                   std::source_location where = std::source_location::current());
  // Those of one type travel in packs, the last first. Values that are not valid are left out.
  std::vector<Output> AllReduce(const Scope& scope, ReduceOp op, std::span<const Output> values,
                                std::string_view name = "",
                                std::source_location where = std::source_location::current());
  // The first axis may be of another size at each rank, and in each step.
  std::vector<Output> AllGather(const Scope& scope, std::span<const Output> values,
                                std::string_view name = "",
                                std::source_location where = std::source_location::current());
  // The values of a rank. Others give values of the same types and shapes, which are not computed.
  std::vector<Output> Broadcast(const Scope& scope, std::span<const Output> values, int root = 0,
                                std::string_view name = "",
                                std::source_location where = std::source_location::current());

  // The error of a step, with what is known of each rank that did not come to the last call or does
  // not answer. Waits for about a second for those.
  Status Explain(const Status& error) const;

 private:
  friend class GroupParts;
  explicit ProcessGroup(std::shared_ptr<GroupState> state);
  const std::shared_ptr<GroupState> state_;
};

}  // namespace millrace

#endif  // MILLRACE_COLLECTIVES_H_
