// SPDX-License-Identifier: Apache-2.0
// Handles of cuBLAS and cuDNN for machines. Only in builds with --config=cuda.
#ifndef DEVICE_CUDA_MACHINE_CUDA_HANDLES_H_
#define DEVICE_CUDA_MACHINE_CUDA_HANDLES_H_

#include "device/cuda/machine/machine.h"

namespace millrace {

CudaHandles LoadedCudaHandles();

}  // namespace millrace

#endif  // DEVICE_CUDA_MACHINE_CUDA_HANDLES_H_
