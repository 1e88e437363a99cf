// SPDX-License-Identifier: Apache-2.0
// The ranks of a program that trains by data parallelism: one group, which all functions share.
#include "millrace/data_parallel.h"

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "millrace/preemption.h"
#include "ranks/group_state.h"
#include "ranks/joined_steps.h"

namespace millrace::dp {
namespace {

struct Program {
  Mutex mu;
  std::shared_ptr<ProcessGroup> world ABSL_GUARDED_BY(mu);
};

// Never destroyed: threads of the program may outlive main.
Program& TheProgram() {
  static auto* const program = new Program;
  return *program;
}

}  // namespace

Status Init(const ProcessGroupOptions& options) {
  Program& program = TheProgram();
  MutexLock lock(&program.mu);
  if (program.world != nullptr) return OkStatus();
  MR_ASSIGN_OR_RETURN(program.world, ProcessGroup::Create(options));
  return OkStatus();
}

bool IsInitialized() {
  Program& program = TheProgram();
  MutexLock lock(&program.mu);
  return program.world != nullptr;
}

Status Shutdown() {
  MR_ASSIGN_OR_RETURN(std::shared_ptr<ProcessGroup> world, World());
  const Status together = world->Barrier("dp::Shutdown");
  ForgetSteps();
  Program& program = TheProgram();
  MutexLock lock(&program.mu);
  program.world = nullptr;
  return together;
}

StatusOr<std::shared_ptr<ProcessGroup>> World() {
  Program& program = TheProgram();
  MutexLock lock(&program.mu);
  if (program.world != nullptr) return program.world;
  return errors::FailedPrecondition(
      "millrace::dp is not initialised: call millrace::dp::Init() first, once in each process");
}

StatusOr<int> Rank() {
  MR_ASSIGN_OR_RETURN(const auto world, World());
  return world->rank();
}

StatusOr<int> Size() {
  MR_ASSIGN_OR_RETURN(const auto world, World());
  return world->size();
}

StatusOr<int> LocalRank() {
  MR_ASSIGN_OR_RETURN(const auto world, World());
  return world->local_rank();
}

StatusOr<int> LocalSize() {
  MR_ASSIGN_OR_RETURN(const auto world, World());
  return world->local_size();
}

Status ConfigureSession(SessionOptions* options) {
  MR_ASSIGN_OR_RETURN(const auto world, World());
  return world->ConfigureSession(options);
}

StatusOr<Tensor> AllReduce(const Tensor& value, ReduceOp op, std::string_view name) {
  MR_ASSIGN_OR_RETURN(const auto world, World());
  return world->AllReduce(op, value, name);
}

StatusOr<std::vector<Tensor>> AllReduce(std::span<const Tensor> values, ReduceOp op,
                                        std::string_view name) {
  MR_ASSIGN_OR_RETURN(const auto world, World());
  return world->AllReduce(op, values, name);
}

StatusOr<TensorRows> AllReduce(const TensorRows& rows, ReduceOp op, std::string_view name) {
  MR_ASSIGN_OR_RETURN(const auto world, World());
  return world->AllReduce(op, rows, name);
}

StatusOr<Tensor> AllGather(const Tensor& value, std::string_view name) {
  MR_ASSIGN_OR_RETURN(const auto world, World());
  return world->AllGather(value, name);
}

StatusOr<Tensor> ReduceScatter(const Tensor& value, ReduceOp op, std::string_view name) {
  MR_ASSIGN_OR_RETURN(const auto world, World());
  return world->ReduceScatter(op, value, name);
}

StatusOr<AllToAllResult> AllToAll(const Tensor& value, std::span<const int64_t> splits,
                                  std::string_view name) {
  MR_ASSIGN_OR_RETURN(const auto world, World());
  return world->AllToAll(value, splits, name);
}

StatusOr<Tensor> Broadcast(const Tensor& value, int root_rank, std::string_view name) {
  MR_ASSIGN_OR_RETURN(const auto world, World());
  return world->Broadcast(value, root_rank, name);
}

Status Barrier() {
  MR_ASSIGN_OR_RETURN(const auto world, World());
  return world->Barrier();
}

StatusOr<bool> ShouldStop(const std::shared_ptr<ProcessGroup>& group) {
  std::shared_ptr<ProcessGroup> of = group;
  if (of == nullptr) {
    MR_ASSIGN_OR_RETURN(of, World());
  }
  GroupState& state = GroupParts::Of(*of);
  MutexLock lock(&state.mu);
  RankCall call = MakeCall("ShouldStop", {}, "");
  call.payload_bytes = PreemptionSignal();
  MR_ASSIGN_OR_RETURN(const std::vector<RankCall> calls, state.Agree(call));
  for (const RankCall& told : calls) {
    if (told.payload_bytes == 0) continue;
    NoticePreemption(static_cast<int>(told.payload_bytes));
    return true;
  }
  return false;
}

Status Explain(const Status& error) {
  const auto world = World();
  return world.ok() ? (*world)->Explain(error) : error;
}

}  // namespace millrace::dp
