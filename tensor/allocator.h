// SPDX-License-Identifier: Apache-2.0
// Where the buffers of tensors come from.
#ifndef TENSOR_ALLOCATOR_H_
#define TENSOR_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "millrace/ref_ptr.h"
#include "millrace/tensor.h"

namespace millrace {

inline constexpr std::size_t kTensorAlignment = 64;

struct AllocatorStats {
  int64_t bytes_in_use = 0;
  int64_t peak_bytes_in_use = 0;
  int64_t num_allocations = 0;         // buffers handed out
  int64_t num_system_allocations = 0;  // of them, those that went to the operating system
  int64_t bytes_limit = 0;             // 0: none
};

// Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual std::string_view name() const = 0;
  // At least `bytes` usable bytes aligned to kTensorAlignment; null if out of memory.
  // The content is undefined.
  virtual RefPtr<Buffer> Allocate(std::size_t bytes) = 0;
  virtual AllocatorStats stats() const = 0;
  virtual MemorySpace space() const { return MemorySpace::kHost; }
};

// The host allocator of the process: buffer header and payload in one block, freed blocks
// kept in size classes (four to an octave) and reused without a call to malloc; large idle
// blocks beyond a cap go back to the operating system. Never destroyed.
Allocator* HostAllocator();

// A buffer of `count` default-constructed objects (strings, handles), destroyed with it.
RefPtr<Buffer> AllocateStringBuffer(Allocator* allocator, std::size_t count);
RefPtr<Buffer> AllocateHandleBuffer(Allocator* allocator, std::size_t count);

// A buffer over memory that somebody else owns; `release(arg)` runs when the last share is
// gone. The memory must stay valid until then.
RefPtr<Buffer> WrapBuffer(void* data, std::size_t size, void (*release)(void* arg), void* arg,
                          MemorySpace space = MemorySpace::kHost);

}  // namespace millrace

#endif  // TENSOR_ALLOCATOR_H_
