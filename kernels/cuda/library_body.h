// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's libraries compute better than our loops: matrix products, convolutions,
// batch normalization in training.
#ifndef KERNELS_CUDA_LIBRARY_BODY_H_
#define KERNELS_CUDA_LIBRARY_BODY_H_

#include <memory>
#include <optional>

#include "device/cuda/driver/cuda_libraries.h"
#include "device/cuda/driver/cuda_machine.h"
#include "kernels/accelerator/stream_kernel.h"
#include "kernels/gpu/loops/loops.h"
#include "kernels/kernel.h"

namespace millrace {

// Thread-safe.
class LibraryBody {
 public:
  virtual ~LibraryBody() = default;
  // Within Stream::Operation::run. False if nothing was done, because the library has no way for
  // these sizes or types: our loops do it.
  virtual StatusOr<bool> Run(const StreamCall& call, CudaMachine* machine,
                             const gpu::Loops& loops) const = 0;
  // As StreamBody::OutputShape.
  virtual std::optional<Shape> OutputShape(const StreamCall&, CudaMachine*, int) const {
    return std::nullopt;
  }
};

// For MatMul, BatchMatMul(V2), _FusedMatMul; for Conv2D, its gradients, the depthwise ones and
// _FusedConv2D; for FusedBatchNorm, V2, V3 and their gradients. Null for other ops; errors are
// recorded. Tests bring libraries of their own.
using CublasLtSource = StatusOr<const CublasLtLibrary*> (*)();
using CublasSource = StatusOr<const CublasLibrary*> (*)();
using CudnnSource = StatusOr<const CudnnLibrary*> (*)();
std::unique_ptr<LibraryBody> MakeMatMulLibraryBody(KernelConstruction& c,
                                                   CublasLtSource source = &GetCublasLt,
                                                   CublasSource plain_source = &GetCublas);
std::unique_ptr<LibraryBody> MakeConvLibraryBody(KernelConstruction& c,
                                                 CudnnSource source = &GetCudnn);
std::unique_ptr<LibraryBody> MakeBatchNormLibraryBody(KernelConstruction& c,
                                                      CudnnSource source = &GetCudnn);

}  // namespace millrace

#endif  // KERNELS_CUDA_LIBRARY_BODY_H_
