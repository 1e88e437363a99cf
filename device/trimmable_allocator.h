// SPDX-License-Identifier: Apache-2.0
// Allocators that keep memory which nobody uses for whoever asks next.
#ifndef DEVICE_TRIMMABLE_ALLOCATOR_H_
#define DEVICE_TRIMMABLE_ALLOCATOR_H_

#include <cstdint>

namespace millrace {

// Beside Allocator; found by dynamic_cast. Thread-safe.
class TrimmableAllocator {
 public:
  virtual ~TrimmableAllocator() = default;
  // Gives back what lies idle and can be. May wait for the device. Bytes.
  virtual int64_t Trim() = 0;
};

}  // namespace millrace

#endif  // DEVICE_TRIMMABLE_ALLOCATOR_H_
