// SPDX-License-Identifier: Apache-2.0
// What the tensors of a step take while it runs: how much at once, and which are the largest.
#ifndef EXECUTOR_MEMORY_MEMORY_TRACKER_H_
#define EXECUTOR_MEMORY_MEMORY_TRACKER_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "executor/memory/memory_quota.h"
#include "kernels/kernel_context.h"
#include "millrace/ref_ptr.h"
#include "tensor/allocator.h"

namespace millrace {

class NodeAllocator;
class TrackedBuffer;

// Of one step on one device, with the functions that its kernels call there; a step without one
// pays nothing. What a kernel takes through its context counts, with the bytes that it asked
// for, from then until the last share of the buffer is gone. Feeds, constants and variables were
// there before the step and do not count. Thread-safe.
class MemoryTracker final : public RefCounted {
 public:
  // `limit` in bytes; 0: none. What would go beyond it, or beyond the quota of the session (null:
  // none), is refused, and the kernel fails. The quota counts what outlives the step, too: what
  // variables keep.
  explicit MemoryTracker(int64_t limit, RefPtr<MemoryQuota> session = {})
      : limit_(limit), session_(std::move(session)) {}

  int64_t limit() const { return limit_; }
  int64_t live_bytes() const;
  // The most at one time.
  int64_t peak_bytes() const;

  // What was refused last, and the largest tensors that were there then, for the message of the
  // error that followed; "" if nothing was refused since the last call.
  std::string TakeRefusal();

  // One buffer of a log: what took it, the how manieth of its buffers it was, and when it was
  // there, on a clock that counts what comes and goes.
  struct Logged {
    const Kernel* kernel = nullptr;
    int32_t ordinal = 0;
    int64_t bytes = 0;
    int64_t begin = 0, end = -1;  // -1: not gone yet
  };
  // Keeps a log of buffers of at least `least` bytes from now on; false if there is one already.
  bool StartLog(int64_t least);
  std::vector<Logged> TakeLog();

  // The tracker of the step whose kernel runs in this thread; null if there is none.
  static MemoryTracker* Current();
  class Scope {
   public:
    explicit Scope(MemoryTracker* tracker);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    MemoryTracker* const before_;
  };

 private:
  friend class NodeAllocator;
  friend class TrackedBuffer;
  static constexpr int kLargestListed = 10;

  RefPtr<Buffer> Allocate(NodeAllocator* node, std::size_t bytes);
  void Forget(TrackedBuffer* buffer);
  enum class Refusal { kStepLimit, kSessionQuota, kSystem };
  void Refuse(const NodeAllocator& node, int64_t bytes, Refusal why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t limit_;
  const RefPtr<MemoryQuota> session_;  // null: none
  mutable Mutex mu_;
  int64_t live_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t peak_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t num_nodes_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<NodeAllocator*> running_ ABSL_GUARDED_BY(mu_);
  TrackedBuffer* buffers_ ABSL_GUARDED_BY(mu_) = nullptr;  // those that live
  std::string refusal_ ABSL_GUARDED_BY(mu_);
  int64_t log_least_ ABSL_GUARDED_BY(mu_) = -1;  // -1: there is no log
  int64_t log_clock_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t log_number_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Logged> log_ ABSL_GUARDED_BY(mu_);
};

// The memory of one run of one kernel, out of `base`. Used by the threads of that kernel.
class NodeAllocator final : public Allocator {
 public:
  // All must outlive it.
  NodeAllocator(Allocator* base, MemoryTracker* tracker, const Kernel* kernel);
  ~NodeAllocator() override;
  NodeAllocator(const NodeAllocator&) = delete;
  NodeAllocator& operator=(const NodeAllocator&) = delete;

  std::string_view name() const override { return base_->name(); }
  RefPtr<Buffer> Allocate(std::size_t bytes) override { return tracker_->Allocate(this, bytes); }
  AllocatorStats stats() const override { return base_->stats(); }
  MemorySpace space() const override { return base_->space(); }

  // The kernel has run. Remembers what the outputs are, to name them.
  void Finish(std::span<const EdgeValue> outputs);
  void Finish();
  void Describe(const EdgeValue& output);

  // After Finish. Bytes that the kernel took in all, the most that it held at once, and what it
  // left.
  int64_t total_bytes() const { return total_; }
  int64_t peak_bytes() const { return peak_; }
  int64_t live_bytes() const { return live_; }
  // What the step had when this kernel brought it to its highest. The highest of all nodes is the
  // peak of the step.
  int64_t step_bytes() const { return step_bytes_; }

 private:
  friend class MemoryTracker;

  Allocator* const base_;
  MemoryTracker* const tracker_;
  const Kernel* const kernel_;
  bool finished_ = false;
  uint64_t id_ = 0;
  int32_t num_logged_ = 0;
  // Guarded by the tracker's lock until Finish.
  int64_t total_ = 0, live_ = 0, peak_ = 0, step_bytes_ = 0, peak_before_ = 0;
};

}  // namespace millrace

#endif  // EXECUTOR_MEMORY_MEMORY_TRACKER_H_
