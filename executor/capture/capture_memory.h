// SPDX-License-Identifier: Apache-2.0
// The memory of what is recorded: first somewhere, to see what is needed when, and then at the
// places that a plan gives (executor/memory/memory_plan.h), in one block.
#ifndef EXECUTOR_CAPTURE_CAPTURE_MEMORY_H_
#define EXECUTOR_CAPTURE_CAPTURE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "executor/memory/memory_plan.h"
#include "millrace/ref_ptr.h"
#include "tensor/allocator.h"

namespace millrace {

// Where each buffer goes, in the order in which they are taken.
struct CaptureLayout {
  std::vector<int64_t> bytes, offsets;
  int64_t block_bytes = 0;
};

// Takes buffers from `base` and keeps them for the next ones. Buffers may outlive it.
class RehearsalMemory final : public Allocator {
 public:
  explicit RehearsalMemory(Allocator* base);
  std::string_view name() const override { return base_->name(); }
  RefPtr<Buffer> Allocate(std::size_t bytes) override;
  AllocatorStats stats() const override { return base_->stats(); }
  MemorySpace space() const override { return base_->space(); }

  CaptureLayout Plan() const;

 private:
  struct Shared;
  class Lent;
  Allocator* const base_;
  const std::shared_ptr<Shared> shared_;
};

// The places of a layout, one after the other. Its buffers own nothing.
class LaidOutMemory final : public Allocator {
 public:
  LaidOutMemory(Allocator* base, const CaptureLayout* layout, char* block)
      : base_(base), layout_(layout), block_(block) {}
  std::string_view name() const override { return base_->name(); }
  // Null for what is not as it was in the rehearsal.
  RefPtr<Buffer> Allocate(std::size_t bytes) override;
  AllocatorStats stats() const override { return base_->stats(); }
  MemorySpace space() const override { return base_->space(); }

  // Whether all was as it was.
  bool kept() const { return kept_ && next_ == layout_->bytes.size(); }

 private:
  Allocator* const base_;
  const CaptureLayout* const layout_;
  char* const block_;
  std::size_t next_ = 0;
  bool kept_ = true;
};

}  // namespace millrace

#endif  // EXECUTOR_CAPTURE_CAPTURE_MEMORY_H_
