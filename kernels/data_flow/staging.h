// SPDX-License-Identifier: Apache-2.0
// What steps leave for each other in staging areas and maps: attempts to put, take and look at
// what lies there, which wait in line.
#ifndef KERNELS_DATA_FLOW_STAGING_H_
#define KERNELS_DATA_FLOW_STAGING_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "device/resource_manager.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/state/waiter.h"
#include "millrace/tensor.h"

namespace millrace {

using StagedTuple = std::vector<Tensor>;

inline int64_t BytesOf(std::span<const Tensor> tuple) {
  int64_t bytes = 0;
  for (const Tensor& t : tuple) bytes += static_cast<int64_t>(t.num_bytes());
  return bytes;
}

// ResourceExhausted for what would not even fit where nothing else lies; a limit of 0 is none.
inline Status CheckFitsStaging(int64_t bytes, int64_t memory_limit) {
  if (memory_limit <= 0 || bytes <= memory_limit) return OkStatus();
  return errors::ResourceExhausted("Attempted to insert tensors with combined size of '", bytes,
                                   "' bytes into Staging Area with a memory limit of '",
                                   memory_limit, "'.");
}

// Thread-safe; never blocks. An attempt that cannot be made yet waits in line until something else
// was done here or its step is cancelled; callbacks run outside the lock. `Held` is what lies here,
// with `std::string Contents() const`: "2 tuples".
template <typename Held>
class Staging : public Resource {
 public:
  using Done = std::function<void(Status)>;
  // Tries to do its part and says whether it could; an error ends it. Runs under the lock.
  using Attempt = std::function<StatusOr<bool>(Held&)>;
  enum class Use { kPut, kTake, kLook };

  Staging(std::string kind, std::string name) : kind_(std::move(kind)), name_(std::move(name)) {}

  // `what` names the attempt while it waits: "an unstage".
  void Do(Use use, std::string what, Attempt attempt, const Waiter& waiter, Done done) {
    CancellationManager* const cancellation = waiter.cancellation;
    std::vector<std::function<void()>> finished;
    Status refused;
    {
      MutexLock lock(&mu_);
      const int64_t id = next_id_++;
      CancellationManager::Token token = -1;
      if (cancellation != nullptr) {
        token = cancellation->NextToken();
        if (!cancellation->RegisterCallback(
                token, [self = RefPtr<Staging>::Share(this), id] { self->Cancel(id); })) {
          refused = errors::Cancelled("the step was cancelled");
        }
      }
      if (refused.ok()) {
        waiting_.push_back({id, use, std::move(attempt), cancellation, token, std::move(done),
                            std::string(waiter.node), std::string(waiter.task)});
        Serve(&finished);
        if (cancellation != nullptr && !waiting_.empty() && waiting_.back().id == id) {
          cancellation->Describe(token,
                                 [self = RefPtr<Staging>::Share(this), what = std::move(what),
                                  wait = waiter.Begin(Wait::Kind::kQueue, name_)]() mutable {
                                   wait.text = StrCat(what, ": ", self->Describe());
                                   return EncodeWait(wait);
                                 });
        }
      }
    }
    if (!refused.ok()) return done(std::move(refused));
    for (auto& callback : finished) callback();
  }

  // What `read` makes of what lies here now.
  template <typename Read>
  auto Look(Read read) const {
    MutexLock lock(&mu_);
    return read(held_);
  }
  std::string DebugString() const override {
    MutexLock lock(&mu_);
    return StrCat(kind_, ", ", held_.Contents());
  }
  // Cancels everything that waits.
  void OnRemoved() override {
    std::list<Waiting> waiting;
    {
      MutexLock lock(&mu_);
      waiting.swap(waiting_);
    }
    for (Waiting& w : waiting) {
      if (w.cancellation != nullptr) w.cancellation->TryDeregisterCallback(w.token);
      w.done(errors::Cancelled(kind_, " '", name_, "' was removed"));
    }
  }

 private:
  struct Waiting {
    int64_t id;
    Use use;
    Attempt attempt;
    CancellationManager* cancellation;
    CancellationManager::Token token;
    Done done;
    std::string node, task;
  };

  // Until nobody gets on: each side may make room for the other.
  void Serve(std::vector<std::function<void()>>* finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto it = waiting_.begin(); it != waiting_.end();) {
        const StatusOr<bool> tried = it->attempt(held_);
        if (tried.ok() && !*tried) {
          ++it;
          continue;
        }
        if (tried.ok() && it->use == Use::kPut) last_put_.Note(it->node, it->task);
        if (tried.ok() && it->use == Use::kTake) last_take_.Note(it->node, it->task);
        finished->push_back([c = it->cancellation, token = it->token, done = std::move(it->done),
                             status = tried.status()] {
          if (c != nullptr) c->TryDeregisterCallback(token);
          done(status);
        });
        it = waiting_.erase(it);
        moved = true;
      }
    }
  }

  void Cancel(int64_t id) {
    Done done;
    {
      MutexLock lock(&mu_);
      const auto it = std::find_if(waiting_.begin(), waiting_.end(),
                                   [id](const Waiting& waiting) { return waiting.id == id; });
      if (it == waiting_.end()) return;  // served in the meantime
      done = std::move(it->done);
      waiting_.erase(it);
    }
    done(errors::Cancelled("the step was cancelled while it waited for ", kind_, " '", name_, "'"));
  }

  std::string Describe() const {
    MutexLock lock(&mu_);
    return StrCat(kind_, " '", name_, "' has ", held_.Contents(), ", ", last_put_.ToString("stage"),
                  ", ", last_take_.ToString("unstage"));
  }

  const std::string kind_, name_;
  mutable Mutex mu_;
  int64_t next_id_ ABSL_GUARDED_BY(mu_) = 0;
  Held held_ ABSL_GUARDED_BY(mu_);
  std::list<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  LastCall last_put_ ABSL_GUARDED_BY(mu_), last_take_ ABSL_GUARDED_BY(mu_);
};

// Base of the ops of areas and maps: all that name the same resource share it. They are
// asynchronous, as most may wait.
class StagingKernel : public Kernel {
 public:
  explicit StagingKernel(KernelConstruction& c)
      : Kernel(c),
        container_(c.attrs().GetOr<std::string>("container", "")),
        resource_(c.attrs().GetOr<std::string>("shared_name", "")),
        capacity_(c.attr<int64_t>("capacity")),
        memory_limit_(c.attr<int64_t>("memory_limit")),
        output_types_(c.output_types().begin(), c.output_types().end()) {
    if (resource_.empty()) resource_ = name();
  }
  bool IsAsync() const override { return true; }
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }

 protected:
  // The resource that the node names, made if there is none.
  template <typename R>
  StatusOr<RefPtr<R>> Find(const KernelContext& ctx) const {
    return ctx.resources()->LookupOrCreate<R>(
        container_, resource_, [this]() -> StatusOr<RefPtr<R>> { return MakeRef<R>(resource_); });
  }
  int64_t capacity() const { return capacity_; }
  int64_t memory_limit() const { return memory_limit_; }

  // The outputs from `first` on. InvalidArgument if what was staged has other types: whoever
  // staged it may be another client.
  Status SetOutputs(KernelContext& ctx, int first, StagedTuple tuple) const {
    for (std::size_t i = 0; i < tuple.size(); ++i) {
      const DataType declared = output_types_[i + static_cast<std::size_t>(first)];
      if (tuple[i].dtype() != declared) {
        return errors::InvalidArgument("component ", i, " of what was staged in '", resource_,
                                       "' is ", DataTypeName(tuple[i].dtype()), ", but ", name(),
                                       " declares ", DataTypeName(declared),
                                       ": give both the same dtypes");
      }
    }
    for (std::size_t i = 0; i < tuple.size(); ++i) {
      ctx.SetOutput(first + static_cast<int>(i), std::move(tuple[i]));
    }
    return OkStatus();
  }

 private:
  std::string container_, resource_;
  const int64_t capacity_, memory_limit_;  // 0: none
  const std::vector<DataType> output_types_;
};

}  // namespace millrace

#endif  // KERNELS_DATA_FLOW_STAGING_H_
