// SPDX-License-Identifier: Apache-2.0
// Locks that steps take and that are free again when the last tensor that holds one is gone.
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/common/handle_kernel.h"
#include "kernels/common/kernel_errors.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/variant.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// Given to one after the other, in the order in which they asked. Thread-safe.
class StepLock : public Resource {
 public:
  using Done = std::function<void(Status, Variant)>;
  explicit StepLock(std::string name) : name_(std::move(name)) {}

  // `done` is called once, perhaps from within, with what holds the lock; Cancelled if the step
  // ends before. No lock of ours is held then.
  void Acquire(CancellationManager* cancellation, Done done);
  void Release();

  std::string DebugString() const override { return StrCat("Mutex ", name_); }

 private:
  struct Waiting {
    CancellationManager* cancellation;
    CancellationManager::Token token;
    Done done;
  };

  void Cancel(int64_t id);

  const std::string name_;
  Mutex mu_;
  bool taken_ ABSL_GUARDED_BY(mu_) = false;
  int64_t next_id_ ABSL_GUARDED_BY(mu_) = 0;
  // By their ids, which grow: the end of a step finds each of its own.
  std::map<int64_t, Waiting> waiting_ ABSL_GUARDED_BY(mu_);
};

// The content of a variant: the lock is free when it goes.
class HeldLock : public RefCounted {
 public:
  explicit HeldLock(RefPtr<StepLock> lock) : lock_(std::move(lock)) {}
  ~HeldLock() override { lock_->Release(); }

 private:
  const RefPtr<StepLock> lock_;
};

Status Gone() { return errors::Cancelled("Lock acquisition cancelled."); }

void StepLock::Acquire(CancellationManager* cancellation, Done done) {
  bool refused = cancellation != nullptr && cancellation->IsCancelled();
  if (!refused) {
    MutexLock lock(&mu_);
    if (taken_) {
      const int64_t id = next_id_++;
      Waiting waiting{cancellation, -1, std::move(done)};
      if (cancellation != nullptr) {
        waiting.token = cancellation->NextToken();
        refused = !cancellation->RegisterCallback(
            waiting.token, [self = RefPtr<StepLock>::Share(this), id] { self->Cancel(id); });
        if (!refused) {
          cancellation->Describe(waiting.token,
                                 [name = name_] { return StrCat("lock '", name, "': taken"); });
        }
      }
      if (!refused) {
        waiting_.emplace(id, std::move(waiting));
        return;
      }
      done = std::move(waiting.done);
    } else {
      taken_ = true;
    }
  }
  if (refused) return done(Gone(), nullptr);
  done(OkStatus(), MakeRef<HeldLock>(RefPtr<StepLock>::Share(this)));
}

void StepLock::Release() {
  Done next;
  {
    MutexLock lock(&mu_);
    if (waiting_.empty()) {
      taken_ = false;
      return;
    }
    Waiting& first = waiting_.begin()->second;
    if (first.cancellation != nullptr) first.cancellation->TryDeregisterCallback(first.token);
    next = std::move(first.done);
    waiting_.erase(waiting_.begin());
  }
  next(OkStatus(), MakeRef<HeldLock>(RefPtr<StepLock>::Share(this)));
}

void StepLock::Cancel(int64_t id) {
  Done done;
  {
    MutexLock lock(&mu_);
    const auto it = waiting_.find(id);
    if (it == waiting_.end()) return;  // it has the lock by now
    done = std::move(it->second.done);
    waiting_.erase(it);
  }
  done(Gone(), nullptr);
}

class MutexKernel : public HandleKernel<StepLock> {
 public:
  using HandleKernel<StepLock>::HandleKernel;

 protected:
  StatusOr<RefPtr<StepLock>> Make() override { return MakeRef<StepLock>(resource_name()); }
  Status CheckSame(const StepLock&) const override { return OkStatus(); }
};

class MutexLockKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override { return CompletesAsynchronously(def().name()); }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    StatusOr<RefPtr<StepLock>> found = LookupHandle<StepLock>(ctx, 0);
    if (!found.ok()) return done(found.status());
    const RefPtr<StepLock> lock = *std::move(found);
    lock->Acquire(ctx.cancellation(), [&ctx, done](Status status, Variant held) {
      if (status.ok()) ctx.SetOutput(0, VariantTensor(std::move(held)));
      done(std::move(status));
    });
  }
};

class ConsumeMutexLockKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    if (in.rank() != 0) {
      return errors::InvalidArgument("Expected input to be a scalar, saw shape: ",
                                     in.shape().DebugString());
    }
    const auto* const held = VariantCast<HeldLock>(in);
    if (held == nullptr) {
      return errors::InvalidArgument(
          "Expected input to contain a SharedLockReleaser object, but saw another variant");
    }
    if (!held->RefCountIsOne()) {
      return errors::InvalidArgument("Expected use count of lock to be 1, but saw more");
    }
    return OkStatus();
  }
};

}  // namespace

void RegisterLockKernels(KernelRegistry& r) {
  RegisterCpu<MutexKernel>(r, "MutexV2");
  RegisterCpu<MutexLockKernel>(r, "MutexLock");
  RegisterCpu<ConsumeMutexLockKernel>(r, "ConsumeMutexLock");
}

}  // namespace millrace
