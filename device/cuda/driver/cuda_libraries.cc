// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/driver/cuda_libraries.h"

#include "base/errors.h"
#include "device/cuda/driver/shared_library.h"

namespace millrace {
namespace {

constexpr char kDriverHint[] = "install NVIDIA's driver (580 or newer)";
constexpr char kToolkitHint[] = "install CUDA 13's libraries";
constexpr char kCudnnHint[] = "install cuDNN 9 for CUDA 13";
constexpr char kNcclHint[] = "install NCCL 2 for CUDA 13";

// The name that a function has in the library, after the headers' macros (cublasCreate_v2).
#define MR_CUDA_NAME_OF(text) #text
#define MR_CUDA_NAME(function) MR_CUDA_NAME_OF(function)
#define MR_CUDA_FIND(function)                                                            \
  table->function =                                                                       \
      reinterpret_cast<decltype(table->function)>(library->Find(MR_CUDA_NAME(function))); \
  if (table->function == nullptr) return library->Lacks(MR_CUDA_NAME(function));

// One loader for each table.
#define MR_CUDA_LOADER(Get, Table, FUNCTIONS, file, hint)              \
  StatusOr<const Table*> Load##Table() {                               \
    StatusOr<SharedLibrary> library = SharedLibrary::Open(file, hint); \
    if (!library.ok()) return library.status();                        \
    auto* const table = new Table;                                     \
    FUNCTIONS(MR_CUDA_FIND)                                            \
    return const_cast<const Table*>(table);                            \
  }
MR_CUDA_LOADER(GetCudaDriver, CudaDriverLibrary, MR_CUDA_DRIVER_FUNCTIONS, "libcuda.so.1",
               kDriverHint)
MR_CUDA_LOADER(GetCublasLt, CublasLtLibrary, MR_CUBLASLT_FUNCTIONS, "libcublasLt.so.13",
               kToolkitHint)
MR_CUDA_LOADER(GetCublas, CublasLibrary, MR_CUBLAS_FUNCTIONS, "libcublas.so.13", kToolkitHint)
MR_CUDA_LOADER(GetCudnn, CudnnLibrary, MR_CUDNN_FUNCTIONS, "libcudnn.so.9", kCudnnHint)
MR_CUDA_LOADER(GetNccl, NcclLibrary, MR_NCCL_FUNCTIONS, "libnccl.so.2", kNcclHint)
#undef MR_CUDA_LOADER

Status Failed(bool no_memory, const char* call, const char* name) {
  const char* const known = name == nullptr ? "an unknown error" : name;
  if (no_memory) return errors::ResourceExhausted(call, ": ", known);
  return errors::Internal(call, ": ", known);
}

}  // namespace

#define MR_CUDA_GETTER(Get, Table)                                               \
  StatusOr<const Table*> Get() {                                                 \
    static const auto* const loaded = new StatusOr<const Table*>(Load##Table()); \
    return *loaded;                                                              \
  }
MR_CUDA_GETTER(GetCudaDriver, CudaDriverLibrary)
MR_CUDA_GETTER(GetCublasLt, CublasLtLibrary)
MR_CUDA_GETTER(GetCublas, CublasLibrary)
MR_CUDA_GETTER(GetCudnn, CudnnLibrary)
MR_CUDA_GETTER(GetNccl, NcclLibrary)
#undef MR_CUDA_GETTER

Status CudaStatus(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return OkStatus();
  return Failed(result == cudaErrorMemoryAllocation, call, cudaGetErrorName(result));
}

Status CudaDriverStatus(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return OkStatus();
  const char* name = nullptr;
  const StatusOr<const CudaDriverLibrary*> driver = GetCudaDriver();
  if (driver.ok()) (*driver)->cuGetErrorName(result, &name);
  return Failed(result == CUDA_ERROR_OUT_OF_MEMORY, call, name);
}

Status CublasStatus(cublasStatus_t result, const char* call) {
  switch (result) {
    case CUBLAS_STATUS_SUCCESS:
      return OkStatus();
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return Failed(false, call, "CUBLAS_STATUS_NOT_INITIALIZED");
    case CUBLAS_STATUS_ALLOC_FAILED:
      return Failed(true, call, "CUBLAS_STATUS_ALLOC_FAILED");
    case CUBLAS_STATUS_INVALID_VALUE:
      return Failed(false, call, "CUBLAS_STATUS_INVALID_VALUE");
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return Failed(false, call, "CUBLAS_STATUS_ARCH_MISMATCH");
    case CUBLAS_STATUS_MAPPING_ERROR:
      return Failed(false, call, "CUBLAS_STATUS_MAPPING_ERROR");
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return Failed(false, call, "CUBLAS_STATUS_EXECUTION_FAILED");
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return Failed(false, call, "CUBLAS_STATUS_INTERNAL_ERROR");
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return Failed(false, call, "CUBLAS_STATUS_NOT_SUPPORTED");
    default:
      return Failed(false, call, nullptr);
  }
}

Status CudnnStatus(cudnnStatus_t result, const char* call) {
  if (result == CUDNN_STATUS_SUCCESS) return OkStatus();
  const StatusOr<const CudnnLibrary*> cudnn = GetCudnn();
  return Failed(result == CUDNN_STATUS_ALLOC_FAILED, call,
                cudnn.ok() ? (*cudnn)->cudnnGetErrorString(result) : nullptr);
}

Status NcclStatus(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return OkStatus();
  const StatusOr<const NcclLibrary*> nccl = GetNccl();
  return Failed(false, call, nccl.ok() ? (*nccl)->ncclGetErrorString(result) : nullptr);
}

}  // namespace millrace
