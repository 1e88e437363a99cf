// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile_kernels/guarded_memory.h"

#include <sys/mman.h>

#include <cstring>

namespace millrace::testing {
namespace {

constexpr std::size_t kPage = 4096;

struct Mapping {
  void* begin = nullptr;
  std::size_t size = 0;
};

void GiveBack(void* arg) {
  auto* const mapping = static_cast<Mapping*>(arg);
  munmap(mapping->begin, mapping->size);
  delete mapping;
}

}  // namespace

RefPtr<Buffer> GuardedAllocator::Allocate(std::size_t bytes) {
  if (bytes > kMostGuardedBytes) return nullptr;
  const std::size_t used = (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
  const std::size_t pages = (used + kPage - 1) / kPage * kPage;
  void* const begin =
      mmap(nullptr, pages + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return nullptr;
  mprotect(static_cast<char*>(begin) + pages, kPage, PROT_NONE);
  char* const data = static_cast<char*>(begin) + pages - used;
  std::memset(data, 0xa5, used);  // what nobody has set is no zero
  return WrapBuffer(data, bytes, &GiveBack, new Mapping{begin, pages + kPage});
}

}  // namespace millrace::testing
