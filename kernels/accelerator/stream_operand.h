// SPDX-License-Identifier: Apache-2.0
// How calls of bodies name tensors.
#ifndef KERNELS_ACCELERATOR_STREAM_OPERAND_H_
#define KERNELS_ACCELERATOR_STREAM_OPERAND_H_

#include "device/copy.h"
#include "millrace/tensor.h"

namespace millrace {

// Device memory by address, host memory by a share.
inline Tensor Operand(const Tensor& value) {
  if (!InDeviceMemory(value)) return value;
  return Tensor(value.dtype(), value.shape(), nullptr, value.raw_data());
}

}  // namespace millrace

#endif  // KERNELS_ACCELERATOR_STREAM_OPERAND_H_
