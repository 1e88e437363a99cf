// SPDX-License-Identifier: Apache-2.0
// Memory that ends where a page ends that nobody may touch.
#ifndef TESTS_HOSTILE_KERNELS_GUARDED_MEMORY_H_
#define TESTS_HOSTILE_KERNELS_GUARDED_MEMORY_H_

#include <cstddef>

#include "tensor/allocator.h"

namespace millrace::testing {

// Every buffer in pages of its own, as far at their end as its alignment lets it: who reads or
// writes beyond it, or uses it once it is given back, is stopped by the system. Null for what is
// larger than kMostGuardedBytes.
class GuardedAllocator final : public Allocator {
 public:
  std::string_view name() const override { return "guarded"; }
  RefPtr<Buffer> Allocate(std::size_t bytes) override;
  AllocatorStats stats() const override { return {}; }
};

inline constexpr std::size_t kMostGuardedBytes = std::size_t{64} << 20;

}  // namespace millrace::testing

#endif  // TESTS_HOSTILE_KERNELS_GUARDED_MEMORY_H_
