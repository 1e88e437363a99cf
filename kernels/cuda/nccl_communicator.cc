// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/nccl_communicator.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

// While a call is being taken, and while executions are under way.
constexpr std::chrono::microseconds kNap(50);
constexpr std::chrono::milliseconds kLook(10);

ncclDataType_t TypeOf(DataType type) {
  switch (type) {
    case kHalf:
      return ncclFloat16;
    case kBfloat16:
      return ncclBfloat16;
    case kDouble:
      return ncclFloat64;
    case kInt32:
      return ncclInt32;
    case kInt64:
      return ncclInt64;
    default:
      return ncclFloat32;
  }
}

ncclRedOp_t OpOf(const CollectiveParams& params) {
  if (params.final == FinalOp::kDiv) return ncclAvg;
  switch (params.merge) {
    case MergeOp::kAdd:
      return ncclSum;
    case MergeOp::kMul:
      return ncclProd;
    case MergeOp::kMin:
      return ncclMin;
    case MergeOp::kMax:
      return ncclMax;
  }
  return ncclSum;
}

}  // namespace

struct NcclCommunicator::Execution {
  LinkedRun run;
  std::shared_ptr<CollectiveExecutor::Guard> guard;
  Mutex mu;
  Ended ended ABSL_GUARDED_BY(mu);

  Ended Take() {
    MutexLock lock(&mu);
    return std::exchange(ended, nullptr);
  }
};

NcclCommunicator::~NcclCommunicator() {
  // Not ncclCommDestroy: that waits for the other members.
  if (comm_ != nullptr && machine_->MakeCurrent().ok()) nccl_.ncclCommAbort(comm_);
}

bool NcclCommunicator::broken() const {
  MutexLock lock(&mu_);
  return broken_;
}

Status NcclCommunicator::Check(ncclResult_t result, const char* call) const {
  if (result == ncclSuccess || result == ncclInProgress) return OkStatus();
  return errors::Internal(call, " (rank ", place_.rank, " of ", place_.size, ", ", machine_->name(),
                          "): ", nccl_.ncclGetErrorString(result));
}

void NcclCommunicator::Run(int64_t number, LinkedRun run, Ended ended) {
  auto execution = std::make_shared<Execution>();
  execution->run = std::move(run);
  {
    MutexLock lock(&execution->mu);
    execution->ended = std::move(ended);
  }
  const auto self = shared_from_this();
  execution->guard = execution->run.executor->GuardRun(
      execution->run.resolved,
      [self, weak = std::weak_ptr<Execution>(execution)](const Status& why) {
        // First this one, whose error says the most.
        if (const auto stopped = weak.lock()) {
          if (const Ended end = stopped->Take()) end(why);
        }
        self->Break(why);
      });
  MutexLock lock(&mu_);
  waiting_[number] = std::move(execution);
  StartWorking();
}

void NcclCommunicator::Break(const Status& why) {
  MutexLock lock(&mu_);
  if (broken_) return;
  broken_ = true;
  why_ = why;
  StartWorking();
}

void NcclCommunicator::StartWorking() {
  changed_.SignalAll();
  if (std::exchange(working_, true)) return;
  machine_->Post([self = shared_from_this()] { self->Work(); });
}

void NcclCommunicator::Work() {
  while (true) {
    ExecutionPtr next;
    std::vector<ExecutionPtr> failed;
    Status why;
    {
      MutexLock lock(&mu_);
      if (broken_) {
        why = why_;
        for (auto& [number, execution] : waiting_) failed.push_back(std::move(execution));
        waiting_.clear();
        failed.insert(failed.end(), enqueued_.begin(), enqueued_.end());
        enqueued_.clear();
        working_ = false;  // what was enqueued ends by itself once it is aborted
      } else if (const auto first = waiting_.find(next_); first != waiting_.end()) {
        if (comm_ != nullptr) {
          next = std::move(first->second);
          waiting_.erase(first);
          enqueued_.insert(next);
          ++next_;
        }
      } else if (enqueued_.empty()) {
        working_ = false;
        return;
      } else if (changed_.WaitUntil(&mu_, std::chrono::steady_clock::now() + kLook)) {
        continue;
      }
    }
    if (!why.ok()) {
      if (comm_ != nullptr && machine_->MakeCurrent().ok()) {
        nccl_.ncclCommAbort(std::exchange(comm_, nullptr));
      }
      for (const ExecutionPtr& execution : failed) Finish(execution, why);
      return;
    }
    if (next != nullptr) {
      Enqueue(next);
    } else if (comm_ == nullptr) {
      if (const Status joined = Join(); !joined.ok()) Break(joined);
    } else {
      // Errors of the network, say, which no kernel ends with.
      ncclResult_t state = ncclSuccess;
      Status status = Check(nccl_.ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
      status.Update(Check(state, "NCCL"));
      if (!status.ok()) Break(status);
    }
  }
}

Status NcclCommunicator::Await() {
  while (true) {
    ncclResult_t state = ncclSuccess;
    MR_RETURN_IF_ERROR(Check(nccl_.ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError"));
    if (state != ncclInProgress) return Check(state, "NCCL");
    {
      MutexLock lock(&mu_);
      if (broken_) return why_;
    }
    std::this_thread::sleep_for(kNap);
  }
}

Status NcclCommunicator::Join() {
  MR_RETURN_IF_ERROR(machine_->MakeCurrent());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  MR_RETURN_IF_ERROR(
      Check(nccl_.ncclCommInitRankConfig(&comm_, place_.size, place_.id, place_.rank, &config),
            "ncclCommInitRankConfig"));
  return Await();
}

void NcclCommunicator::Enqueue(const ExecutionPtr& execution) {
  const LinkedRun& run = execution->run;
  const std::string& node = run.resolved->params.node;
  Stream* const stream = machine_->stream(StreamKind::kCompute);
  const auto self = shared_from_this();
  stream->Enqueue({run.work, node, [self, execution] { return self->Issue(execution->run); }});
  stream->EnqueueCallback(run.work, node, [self, execution](const Status& ran) {
    Status status = ran;
    {
      MutexLock lock(&self->mu_);
      self->enqueued_.erase(execution);
      self->changed_.SignalAll();
      // A kernel that was aborted has run as far as the stream knows.
      if (status.ok() && self->broken_) status = self->why_;
    }
    // The other members wait for what was not enqueued here.
    if (!status.ok()) self->Break(status);
    self->Finish(execution, status);
  });
}

void NcclCommunicator::Finish(const ExecutionPtr& execution, const Status& status) {
  const Ended ended = execution->Take();
  if (ended != nullptr) ended(execution->guard->End(status));
}

Status NcclCommunicator::Issue(const LinkedRun& run) {
  MR_RETURN_IF_ERROR(Call(run));
  return Await();
}

Status NcclCommunicator::Call(const LinkedRun& run) {
  const CollectiveParams& params = run.resolved->params;
  const auto stream = static_cast<cudaStream_t>(machine_->compute_stream());
  const void* const from = run.input.raw_data();
  void* const to = run.output.raw_data();
  switch (params.kind) {
    case CollectiveKind::kReduce:
      return Check(nccl_.ncclAllReduce(from, to, run.output.num_elements(), TypeOf(params.dtype),
                                       OpOf(params), comm_, stream),
                   "ncclAllReduce");
    case CollectiveKind::kGather:
      return Check(nccl_.ncclAllGather(from, to, run.input.num_bytes(), ncclInt8, comm_, stream),
                   "ncclAllGather");
    case CollectiveKind::kBroadcast:
      return Check(nccl_.ncclBroadcast(from == nullptr ? to : from, to, run.output.num_bytes(),
                                       ncclInt8, run.resolved->source_rank, comm_, stream),
                   "ncclBroadcast");
  }
  return errors::Internal("no such collective");
}

}  // namespace millrace
