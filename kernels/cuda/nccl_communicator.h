// SPDX-License-Identifier: Apache-2.0
// One member's end of an NCCL communicator.
#ifndef KERNELS_CUDA_NCCL_COMMUNICATOR_H_
#define KERNELS_CUDA_NCCL_COMMUNICATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/mutex.h"
#include "device/cuda/driver/cuda_libraries.h"
#include "device/cuda/driver/cuda_machine.h"
#include "kernels/accelerator/collectives.h"

namespace millrace {

// Thread-safe.
class NcclCommunicator final : public std::enable_shared_from_this<NcclCommunicator> {
 public:
  using Ended = std::function<void(const Status&)>;
  struct Place {
    int64_t epoch = 0;  // later ones are larger
    ncclUniqueId id{};
    int rank = 0, size = 0;
  };

  NcclCommunicator(const NcclLibrary* nccl, CudaMachine* machine, const Place& place)
      : nccl_(*nccl), machine_(machine), place_(place) {}
  // Nothing is under way: that would keep a share.
  ~NcclCommunicator();

  int64_t epoch() const { return place_.epoch; }
  bool broken() const;

  // Enqueues executions in the order of their numbers, from 0 without gaps. `ended` is called
  // once.
  void Run(int64_t number, LinkedRun run, Ended ended);
  // Ends it for good, and what is under way with `why`. The first reason counts.
  void Break(const Status& why);

 private:
  struct Execution;
  using ExecutionPtr = std::shared_ptr<Execution>;

  void StartWorking() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Work();
  Status Join();
  void Enqueue(const ExecutionPtr& execution);
  Status Issue(const LinkedRun& run);
  Status Call(const LinkedRun& run);
  // Until NCCL has taken the last call.
  Status Await();
  void Finish(const ExecutionPtr& execution, const Status& status);
  Status Check(ncclResult_t result, const char* call) const;

  const NcclLibrary& nccl_;
  CudaMachine* const machine_;
  const Place place_;
  // Of the thread that works; null before Join, and after the end.
  ncclComm_t comm_ = nullptr;
  mutable Mutex mu_;
  CondVar changed_;
  bool working_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  Status why_ ABSL_GUARDED_BY(mu_);
  int64_t next_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int64_t, ExecutionPtr> waiting_ ABSL_GUARDED_BY(mu_);
  std::set<ExecutionPtr> enqueued_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // KERNELS_CUDA_NCCL_COMMUNICATOR_H_
