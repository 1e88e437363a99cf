// SPDX-License-Identifier: Apache-2.0
// Who holds the memory of an allocator that has run out of it.
#ifndef DEVICE_MEMORY_REPORT_H_
#define DEVICE_MEMORY_REPORT_H_

#include <functional>
#include <string>

#include "tensor/allocator.h"

namespace millrace {

// A sentence or two for people, with the biggest tensors first; "" if the allocator makes none.
// Thread-safe, as all here.
std::string MemoryReport(const Allocator* allocator);

// For allocators: how the report is made, until it is taken back.
void SetMemoryReport(const Allocator* allocator, std::function<std::string()> report);
void ClearMemoryReport(const Allocator* allocator);

}  // namespace millrace

#endif  // DEVICE_MEMORY_REPORT_H_
