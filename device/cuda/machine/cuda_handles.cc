// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/machine/cuda_handles.h"

#include "base/errors.h"
#include "base/status_macros.h"
#include "device/cuda/driver/cuda_libraries.h"

namespace millrace {
namespace {

StatusOr<void*> Make(CudaHandles::Kind kind, void* stream_pointer) {
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  switch (kind) {
    case CudaHandles::kCublasLt: {
      MR_ASSIGN_OR_RETURN(const CublasLtLibrary* const library, GetCublasLt());
      cublasLtHandle_t handle = nullptr;
      MR_RETURN_IF_ERROR(CublasStatus(library->cublasLtCreate(&handle), "cublasLtCreate"));
      return handle;
    }
    case CudaHandles::kCublas: {
      MR_ASSIGN_OR_RETURN(const CublasLibrary* const library, GetCublas());
      cublasHandle_t handle = nullptr;
      MR_RETURN_IF_ERROR(CublasStatus(library->cublasCreate(&handle), "cublasCreate"));
      MR_RETURN_IF_ERROR(CublasStatus(library->cublasSetStream(handle, stream), "cublasSetStream"));
      return handle;
    }
    case CudaHandles::kCudnn: {
      MR_ASSIGN_OR_RETURN(const CudnnLibrary* const library, GetCudnn());
      cudnnHandle_t handle = nullptr;
      MR_RETURN_IF_ERROR(CudnnStatus(library->cudnnCreate(&handle), "cudnnCreate"));
      MR_RETURN_IF_ERROR(CudnnStatus(library->cudnnSetStream(handle, stream), "cudnnSetStream"));
      return handle;
    }
  }
  return errors::Internal("no such handle");
}

void Destroy(CudaHandles::Kind kind, void* handle) {
  switch (kind) {
    case CudaHandles::kCublasLt:
      if (const auto library = GetCublasLt(); library.ok()) {
        (*library)->cublasLtDestroy(static_cast<cublasLtHandle_t>(handle));
      }
      return;
    case CudaHandles::kCublas:
      if (const auto library = GetCublas(); library.ok()) {
        (*library)->cublasDestroy(static_cast<cublasHandle_t>(handle));
      }
      return;
    case CudaHandles::kCudnn:
      if (const auto library = GetCudnn(); library.ok()) {
        (*library)->cudnnDestroy(static_cast<cudnnHandle_t>(handle));
      }
      return;
  }
}

}  // namespace

CudaHandles LoadedCudaHandles() { return {&Make, &Destroy}; }

}  // namespace millrace
