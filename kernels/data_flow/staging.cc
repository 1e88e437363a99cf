// SPDX-License-Identifier: Apache-2.0
// Staging areas: tuples that one step leaves for another, bounded by number and bytes.
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/common/handle_kernel.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/state/waiter.h"

namespace millrace {
namespace {

// Thread-safe; never blocks. What cannot be done yet waits in line until the area changes or
// its step is cancelled; callbacks run outside the lock.
class StagingArea : public Resource {
 public:
  using Tuple = std::vector<Tensor>;
  using Done = std::function<void(Status)>;
  // Tries to do its part and says whether it could; runs under the lock.
  using Attempt = std::function<bool(std::deque<Tuple>&)>;

  StagingArea(int64_t capacity, int64_t memory_limit)
      : capacity_(capacity), memory_limit_(memory_limit) {}

  void Put(Tuple tuple, const Waiter& waiter, Done done) {
    const int64_t bytes = BytesOf(tuple);
    if (memory_limit_ > 0 && bytes > memory_limit_) {
      return done(errors::ResourceExhausted("Attempted to insert tensors with combined size of '",
                                            bytes, "' bytes into Staging Area with a memory ",
                                            "limit of '", memory_limit_, "'."));
    }
    Do(
        [this, tuple = std::move(tuple), bytes](std::deque<Tuple>& tuples) mutable {
          int64_t held = 0;
          for (const Tuple& t : tuples) held += memory_limit_ > 0 ? BytesOf(t) : 0;
          const bool full = (capacity_ > 0 && static_cast<int64_t>(tuples.size()) >= capacity_) ||
                            (memory_limit_ > 0 && held + bytes > memory_limit_);
          if (!full) tuples.push_back(std::move(tuple));
          return !full;
        },
        waiter, std::move(done));
  }

  void Do(Attempt attempt, const Waiter& waiter, Done done) {
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
                token, [self = RefPtr<StagingArea>::Share(this), id] { self->Cancel(id); })) {
          refused = errors::Cancelled("the step was cancelled");
        }
      }
      if (refused.ok()) {
        waiting_.push_back({id, std::move(attempt), cancellation, token, std::move(done)});
        Serve(&finished);
        if (cancellation != nullptr && !waiting_.empty() && waiting_.back().id == id) {
          cancellation->Describe(token, [self = RefPtr<StagingArea>::Share(this),
                                         wait = waiter.Begin(Wait::Kind::kQueue, "")]() mutable {
            wait.text = self->DebugString();
            return EncodeWait(wait);
          });
        }
      }
    }
    if (!refused.ok()) return done(std::move(refused));
    for (auto& callback : finished) callback();
  }

  int64_t size() const {
    MutexLock lock(&mu_);
    return static_cast<int64_t>(tuples_.size());
  }
  std::string DebugString() const override { return StrCat("StagingArea, ", size(), " tuples"); }
  void OnRemoved() override {
    std::list<Waiting> waiting;
    {
      MutexLock lock(&mu_);
      waiting.swap(waiting_);
    }
    for (Waiting& w : waiting) {
      if (w.cancellation != nullptr) w.cancellation->TryDeregisterCallback(w.token);
      w.done(errors::Cancelled("the staging area was removed"));
    }
  }

 private:
  struct Waiting {
    int64_t id;
    Attempt attempt;
    CancellationManager* cancellation;
    CancellationManager::Token token;
    Done done;
  };

  static int64_t BytesOf(const Tuple& tuple) {
    int64_t bytes = 0;
    for (const Tensor& t : tuple) bytes += static_cast<int64_t>(t.num_bytes());
    return bytes;
  }

  // Until nobody gets on: each side may make room for the other.
  void Serve(std::vector<std::function<void()>>* finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto it = waiting_.begin(); it != waiting_.end();) {
        if (!it->attempt(tuples_)) {
          ++it;
          continue;
        }
        finished->push_back([c = it->cancellation, token = it->token, done = std::move(it->done)] {
          if (c != nullptr) c->TryDeregisterCallback(token);
          done(OkStatus());
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
      for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
        if (it->id != id) continue;
        done = std::move(it->done);
        waiting_.erase(it);
        break;
      }
    }
    if (done) done(errors::Cancelled("the step was cancelled while it waited for a staging area"));
  }

  const int64_t capacity_, memory_limit_;  // 0: none
  mutable Mutex mu_;
  int64_t next_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Tuple> tuples_ ABSL_GUARDED_BY(mu_);
  std::list<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
};

// Finds the area of the node: all ops of one area have the same shared_name.
class StagingKernel : public Kernel {
 public:
  explicit StagingKernel(KernelConstruction& c)
      : Kernel(c),
        container_(c.attrs().GetOr<std::string>("container", "")),
        resource_(c.attrs().GetOr<std::string>("shared_name", "")),
        capacity_(c.attr<int64_t>("capacity")),
        memory_limit_(c.attr<int64_t>("memory_limit")) {
    if (resource_.empty()) resource_ = name();
  }
  bool IsAsync() const override { return true; }
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    StatusOr<RefPtr<StagingArea>> area = ctx.resources()->LookupOrCreate<StagingArea>(
        container_, resource_, [this]() -> StatusOr<RefPtr<StagingArea>> {
          return MakeRef<StagingArea>(capacity_, memory_limit_);
        });
    if (!area.ok()) return done(area.status());
    Run(ctx, **area, done);
  }

 protected:
  // Calls `done` once.
  virtual void Run(KernelContext& ctx, StagingArea& area, DoneCallback done) = 0;

  static Status SetOutputs(KernelContext& ctx, const StagingArea::Tuple& tuple) {
    if (static_cast<int>(tuple.size()) != ctx.num_outputs()) {
      return errors::InvalidArgument("Mismatch stage/unstage: ", tuple.size(), " vs. ",
                                     ctx.num_outputs());
    }
    for (int i = 0; i < ctx.num_outputs(); ++i) ctx.SetOutput(i, tuple[i]);
    return OkStatus();
  }

 private:
  std::string container_, resource_;
  const int64_t capacity_, memory_limit_;
};

class StageKernel : public StagingKernel {
 public:
  using StagingKernel::StagingKernel;
  void Run(KernelContext& ctx, StagingArea& area, DoneCallback done) override {
    StagingArea::Tuple tuple;
    for (int i = 0; i < ctx.num_inputs(); ++i) tuple.push_back(ctx.locked_input(i));
    area.Put(std::move(tuple), Waiter(ctx), done);
  }
};

class UnstageKernel : public StagingKernel {
 public:
  using StagingKernel::StagingKernel;
  void Run(KernelContext& ctx, StagingArea& area, DoneCallback done) override {
    auto taken = std::make_shared<StagingArea::Tuple>();
    area.Do(
        [taken](std::deque<StagingArea::Tuple>& tuples) {
          if (tuples.empty()) return false;
          *taken = std::move(tuples.front());
          tuples.pop_front();
          return true;
        },
        Waiter(ctx),
        [&ctx, taken, done](Status status) {
          done(status.ok() ? SetOutputs(ctx, *taken) : std::move(status));
        });
  }
};

class StagePeekKernel : public StagingKernel {
 public:
  using StagingKernel::StagingKernel;
  void Run(KernelContext& ctx, StagingArea& area, DoneCallback done) override {
    if (ctx.input(0).rank() != 0) {
      return done(errors::InvalidArgument("index must be scalar, got shape ",
                                          ctx.input(0).shape().DebugString()));
    }
    const StatusOr<int64_t> index = IntScalar(ctx.input(0), "index");
    if (!index.ok()) return done(index.status());
    if (*index < 0) return done(errors::InvalidArgument("index must not be negative"));
    auto seen = std::make_shared<StagingArea::Tuple>();
    area.Do(
        [seen, at = *index](std::deque<StagingArea::Tuple>& tuples) {
          if (at >= static_cast<int64_t>(tuples.size())) return false;
          *seen = tuples[at];
          return true;
        },
        Waiter(ctx),
        [&ctx, seen, done](Status status) {
          done(status.ok() ? SetOutputs(ctx, *seen) : std::move(status));
        });
  }
};

class StageSizeKernel : public StagingKernel {
 public:
  using StagingKernel::StagingKernel;
  void Run(KernelContext& ctx, StagingArea& area, DoneCallback done) override {
    ctx.SetOutput(0, Tensor::Scalar(static_cast<int32_t>(area.size())));
    done(OkStatus());
  }
};

class StageClearKernel : public StagingKernel {
 public:
  using StagingKernel::StagingKernel;
  void Run(KernelContext& ctx, StagingArea& area, DoneCallback done) override {
    area.Do(
        [](std::deque<StagingArea::Tuple>& tuples) {
          tuples.clear();
          return true;
        },
        Waiter(ctx), done);
  }
};

}  // namespace

void RegisterStagingKernels(KernelRegistry& r) {
  RegisterCpu<StageKernel>(r, "Stage");
  RegisterCpu<UnstageKernel>(r, "Unstage");
  RegisterCpu<StagePeekKernel>(r, "StagePeek");
  RegisterCpu<StageSizeKernel>(r, "StageSize");
  RegisterCpu<StageClearKernel>(r, "StageClear");
}

}  // namespace millrace
