// SPDX-License-Identifier: Apache-2.0
#include "executor/memory/memory_tracker.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "base/strings.h"

namespace millrace {
namespace {

thread_local MemoryTracker* t_current = nullptr;

}  // namespace

// A share of a block of the allocator below, in the list of its tracker.
class TrackedBuffer final : public Buffer {
 public:
  TrackedBuffer(RefPtr<Buffer> place, RefPtr<Buffer> block, RefPtr<MemoryTracker> tracker,
                const Kernel* kernel, uint64_t node, int64_t bytes)
      : Buffer(block->data(), block->size(), block->space()),
        kernel(kernel),
        node(node),
        bytes(bytes),
        place_(std::move(place)),
        block_(std::move(block)),
        tracker_(std::move(tracker)) {}

  const MemoryTracker* tracker() const { return tracker_.get(); }

  const Kernel* const kernel;
  const uint64_t node;  // NodeAllocator::id_
  const int64_t bytes;
  // All guarded by the tracker's lock.
  DataType dtype = DataType::kInvalid;  // kInvalid: not an output, or not yet
  Shape shape;
  TrackedBuffer* next = nullptr;
  TrackedBuffer* previous = nullptr;
  uint64_t log_number = 0;  // 0: of no log
  std::size_t log_index = 0;

 private:
  void Destroy() override {
    tracker_->Forget(this);
    const RefPtr<MemoryTracker> tracker = std::move(tracker_);
    const RefPtr<Buffer> block = std::move(block_), place = std::move(place_);  // outlive this
    std::destroy_at(this);
  }

  RefPtr<Buffer> place_;  // where this object lies
  RefPtr<Buffer> block_;
  RefPtr<MemoryTracker> tracker_;
};

MemoryTracker* MemoryTracker::Current() { return t_current; }
MemoryTracker::Scope::Scope(MemoryTracker* tracker) : before_(std::exchange(t_current, tracker)) {}
MemoryTracker::Scope::~Scope() { t_current = before_; }

int64_t MemoryTracker::live_bytes() const {
  MutexLock lock(&mu_);
  return live_;
}

int64_t MemoryTracker::peak_bytes() const {
  MutexLock lock(&mu_);
  return peak_;
}

RefPtr<Buffer> MemoryTracker::Allocate(NodeAllocator* node, std::size_t size) {
  const auto bytes = static_cast<int64_t>(size);
  {
    MutexLock lock(&mu_);
    if (bytes < 0 || (limit_ > 0 && bytes > limit_ - live_)) {
      Refuse(*node, bytes, Refusal::kStepLimit);
      return nullptr;
    }
    if (session_ && !session_->Take(bytes)) {
      Refuse(*node, bytes, Refusal::kSessionQuota);
      return nullptr;
    }
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    node->total_ += bytes;
    node->live_ += bytes;
    node->peak_ = std::max(node->peak_, node->live_);
    node->step_bytes_ = std::max(node->step_bytes_, live_);
  }
  RefPtr<Buffer> block = node->base_->Allocate(size);
  RefPtr<Buffer> place = block ? HostAllocator()->Allocate(sizeof(TrackedBuffer)) : nullptr;
  if (!place) {
    MutexLock lock(&mu_);
    live_ -= bytes;
    node->live_ -= bytes;
    if (session_) session_->Give(bytes);
    Refuse(*node, bytes, Refusal::kSystem);
    return nullptr;
  }
  void* const at = place->data();
  auto* const buffer =
      new (at) TrackedBuffer(std::move(place), std::move(block), RefPtr<MemoryTracker>::Share(this),
                             node->kernel_, node->id_, bytes);
  MutexLock lock(&mu_);
  buffer->next = buffers_;
  if (buffers_ != nullptr) buffers_->previous = buffer;
  buffers_ = buffer;
  if (log_least_ >= 0 && bytes >= log_least_) {
    buffer->log_number = log_number_;
    buffer->log_index = log_.size();
    log_.push_back({node->kernel_, node->num_logged_++, bytes, ++log_clock_, -1});
  }
  return RefPtr<Buffer>(buffer);
}

void MemoryTracker::Forget(TrackedBuffer* buffer) {
  MutexLock lock(&mu_);
  live_ -= buffer->bytes;
  if (session_) session_->Give(buffer->bytes);
  if (buffer->next != nullptr) buffer->next->previous = buffer->previous;
  (buffer->previous != nullptr ? buffer->previous->next : buffers_) = buffer->next;
  if (log_least_ >= 0 && buffer->log_number == log_number_) {
    log_[buffer->log_index].end = ++log_clock_;
  }
  for (NodeAllocator* node : running_) {
    if (node->id_ == buffer->node) node->live_ -= buffer->bytes;
  }
}

void MemoryTracker::Refuse(const NodeAllocator& node, int64_t bytes, Refusal why) {
  refusal_ = StrCat("{{node ", node.kernel_->name(), "}} asked for ", bytes,
                    " bytes, where the tensors of the step took ", live_);
  switch (why) {
    case Refusal::kStepLimit:
      StrAppend(&refusal_, " of their limit of ", limit_, " bytes");
      break;
    case Refusal::kSessionQuota:
      StrAppend(&refusal_, " bytes, and all that the session keeps here ", session_->used(),
                " of its quota of ", session_->limit(), " bytes (--session_memory_limit)");
      break;
    case Refusal::kSystem:
      StrAppend(&refusal_, " bytes and the system had no more");
      break;
  }
  std::vector<const TrackedBuffer*> largest;
  for (const TrackedBuffer* b = buffers_; b != nullptr; b = b->next) largest.push_back(b);
  const std::size_t listed = std::min<std::size_t>(largest.size(), kLargestListed);
  std::partial_sort(largest.begin(), largest.begin() + listed, largest.end(),
                    [](const TrackedBuffer* a, const TrackedBuffer* b) {
                      return a->bytes != b->bytes ? a->bytes > b->bytes : a->node < b->node;
                    });
  if (listed == 0) return;
  StrAppend(&refusal_, ". The largest of ", largest.size(), ":");
  for (std::size_t i = 0; i < listed; ++i) {
    const TrackedBuffer& b = *largest[i];
    StrAppend(&refusal_, "\n\t ", b.bytes, " bytes of {{node ", b.kernel->name(), "}}: ");
    if (b.dtype == DataType::kInvalid) {
      refusal_ += "its own, not an output";
    } else {
      StrAppend(&refusal_, DataTypeName(b.dtype), " ", b.shape.DebugString());
    }
  }
}

bool MemoryTracker::StartLog(int64_t least) {
  MutexLock lock(&mu_);
  if (log_least_ >= 0) return false;
  log_least_ = least;
  ++log_number_;
  return true;
}

std::vector<MemoryTracker::Logged> MemoryTracker::TakeLog() {
  MutexLock lock(&mu_);
  log_least_ = -1;
  return std::exchange(log_, {});
}

std::string MemoryTracker::TakeRefusal() {
  MutexLock lock(&mu_);
  return std::exchange(refusal_, "");
}

NodeAllocator::NodeAllocator(Allocator* base, MemoryTracker* tracker, const Kernel* kernel)
    : base_(base), tracker_(tracker), kernel_(kernel) {
  MutexLock lock(&tracker_->mu_);
  id_ = ++tracker_->num_nodes_;
  peak_before_ = tracker_->peak_;
  tracker_->running_.push_back(this);
}

NodeAllocator::~NodeAllocator() {
  if (!finished_) Finish();
}

void NodeAllocator::Describe(const EdgeValue& output) {
  if (output.kind != EdgeValue::Kind::kValue) return;
  auto* const buffer = dynamic_cast<TrackedBuffer*>(output.value.buffer());
  if (buffer == nullptr || buffer->tracker() != tracker_) return;
  MutexLock lock(&tracker_->mu_);
  buffer->dtype = output.value.dtype();
  buffer->shape = output.value.shape();
}

void NodeAllocator::Finish(std::span<const EdgeValue> outputs) {
  for (const EdgeValue& output : outputs) Describe(output);
  Finish();
}

void NodeAllocator::Finish() {
  MutexLock lock(&tracker_->mu_);
  finished_ = true;
  std::erase(tracker_->running_, this);
  // Functions that the kernel called took theirs on other accounts.
  if (tracker_->peak_ > peak_before_) step_bytes_ = tracker_->peak_;
}

}  // namespace millrace
