// SPDX-License-Identifier: Apache-2.0
// The memory of a simulated accelerator.
#ifndef DEVICE_FAKE_FAKE_MEMORY_H_
#define DEVICE_FAKE_FAKE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "millrace/status.h"
#include "tensor/allocator.h"

namespace millrace {

// One region, mapped twice: without any access where tensors point, and readable and writable
// for the machine's thread. Blocks are found by best fit and joined when they are free. Lives
// until its last buffer is gone. Thread-safe.
class FakeMemory final : public Allocator, public std::enable_shared_from_this<FakeMemory> {
 public:
  static StatusOr<std::shared_ptr<FakeMemory>> Map(std::string name, int64_t limit);
  ~FakeMemory() override;

  std::string_view name() const override { return name_; }
  RefPtr<Buffer> Allocate(std::size_t bytes) override;
  AllocatorStats stats() const override;
  MemorySpace space() const override { return MemorySpace::kDevice; }

  void FailNext(int times);
  // Called with each new block, in the thread that takes it.
  void SetOnNew(std::function<void(void* data, std::size_t bytes)> on_new);

  char* begin() const { return shut_; }
  std::size_t size() const { return size_; }
  char* alias() const { return open_; }

 private:
  class Block;
  FakeMemory(std::string name, std::size_t size) : name_(std::move(name)), size_(size) {}
  void Free(std::size_t offset, std::size_t bytes);

  const std::string name_;
  const std::size_t size_;
  char* shut_ = nullptr;
  char* open_ = nullptr;
  std::function<void(void*, std::size_t)> on_new_;  // constant once set
  mutable Mutex mu_;
  std::map<std::size_t, std::size_t> free_ ABSL_GUARDED_BY(mu_);  // size by offset
  AllocatorStats stats_ ABSL_GUARDED_BY(mu_);
  int fail_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace

#endif  // DEVICE_FAKE_FAKE_MEMORY_H_
