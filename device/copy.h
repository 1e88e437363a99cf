// SPDX-License-Identifier: Apache-2.0
// Copies of tensors between host and device memory. None of them waits: the device's streams do,
// for each other.
#ifndef DEVICE_COPY_H_
#define DEVICE_COPY_H_

#include <functional>
#include <string_view>

#include "device/stream.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// True if host code must not touch the elements.
inline bool InDeviceMemory(const Tensor& value) {
  return value.buffer() != nullptr && value.buffer()->space() == MemorySpace::kDevice;
}

// A copy of `host` in memory from `allocator` (the accelerator's, or one on top of it) that
// whatever is enqueued in the compute stream from now on may read. The bytes of `host` must stay
// as they are until the copy has run; a share of it is kept. ResourceExhausted without memory.
// Strings, handles and tensors without elements are always host values: these come back as they
// are.
StatusOr<Tensor> CopyToDevice(Accelerator* to, Allocator* allocator, const Tensor& host,
                              DeviceWork* work, std::string_view node);

// Calls `done` with a copy in host memory when what the compute stream was given so far, and the
// copy, have run: on a host thread of the device, or before this returns if there is no memory.
// With an error, which is that of the work, the tensor is empty. A tensor without elements, or in
// host memory, only waits.
void CopyToHost(Accelerator* from, const Tensor& value, DeviceWork* work, std::string_view node,
                std::function<void(const Status&, const Tensor&)> done);

// A copy in the memory of another accelerator of this process, ready for its compute stream.
StatusOr<Tensor> CopyToPeer(Accelerator* from, Accelerator* to, Allocator* allocator,
                            const Tensor& value, DeviceWork* work, std::string_view node);

// A copy in the same memory, in the compute stream; runs even after an error of the work.
StatusOr<Tensor> CopyOnDevice(Accelerator* on, Allocator* allocator, const Tensor& value,
                              DeviceWork* work, std::string_view node);

}  // namespace millrace

#endif  // DEVICE_COPY_H_
