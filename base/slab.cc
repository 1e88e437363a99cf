// SPDX-License-Identifier: Apache-2.0
#include "base/slab.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace millrace {
namespace {

std::size_t RoundUp(std::size_t bytes) {
  return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

// A slab's last block is a few bytes short of a huge page.
bool IsHuge(std::size_t bytes) { return bytes > kHugePageBytes - kHugePageBytes / 64; }

}  // namespace

void* AllocateBlock(std::size_t bytes) {
  if (!IsHuge(bytes)) return ::operator new(bytes);
  // One page too many, so that a part of it is aligned.
  const std::size_t size = RoundUp(bytes), mapped = size + kHugePageBytes;
  void* const memory =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* const begin = static_cast<std::byte*>(memory);
  const std::size_t before =
      RoundUp(reinterpret_cast<std::uintptr_t>(begin)) - reinterpret_cast<std::uintptr_t>(begin);
  if (before > 0) munmap(begin, before);
  if (before < kHugePageBytes) munmap(begin + before + size, kHugePageBytes - before);
  madvise(begin + before, size, MADV_HUGEPAGE);  // as far as the system likes
  return begin + before;
}

void FreeBlock(void* block, std::size_t bytes) {
  if (!IsHuge(bytes)) return ::operator delete(block);
  munmap(block, RoundUp(bytes));
}

}  // namespace millrace
