// SPDX-License-Identifier: Apache-2.0
// NVIDIA's libraries as tables of functions, found at run time. Types are those of the toolkit's
// headers; nothing is linked. Only builds with --config=cuda have these.
//
//   MR_ASSIGN_OR_RETURN(const CudnnLibrary* cudnn, GetCudnn());
//   MR_RETURN_IF_ERROR(CudnnStatus(cudnn->cudnnSetStream(handle, stream), "cudnnSetStream"));
//
// A function that is not in a table yet gets a line there, in alphabetical order.
#ifndef DEVICE_CUDA_DRIVER_CUDA_LIBRARIES_H_
#define DEVICE_CUDA_DRIVER_CUDA_LIBRARIES_H_

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>

#include "millrace/status.h"

namespace millrace {

// Those of the driver with versions (cuCtxCreate_v4) are named as the headers' macros expand.
#define MR_CUDA_DRIVER_FUNCTIONS(F) \
  F(cuFuncGetAttribute)             \
  F(cuFuncSetAttribute)             \
  F(cuGetErrorName)                 \
  F(cuGetErrorString)               \
  F(cuLaunchKernel)                 \
  F(cuLaunchKernelEx)               \
  F(cuLinkAddData)                  \
  F(cuLinkComplete)                 \
  F(cuLinkCreate)                   \
  F(cuLinkDestroy)                  \
  F(cuModuleGetFunction)            \
  F(cuModuleLoadDataEx)             \
  F(cuModuleUnload)                 \
  F(cuTensorMapEncodeTiled)

#define MR_CUBLASLT_FUNCTIONS(F)          \
  F(cublasLtCreate)                       \
  F(cublasLtDestroy)                      \
  F(cublasLtGetVersion)                   \
  F(cublasLtMatmul)                       \
  F(cublasLtMatmulAlgoGetHeuristic)       \
  F(cublasLtMatmulDescCreate)             \
  F(cublasLtMatmulDescDestroy)            \
  F(cublasLtMatmulDescSetAttribute)       \
  F(cublasLtMatmulPreferenceCreate)       \
  F(cublasLtMatmulPreferenceDestroy)      \
  F(cublasLtMatmulPreferenceSetAttribute) \
  F(cublasLtMatrixLayoutCreate)           \
  F(cublasLtMatrixLayoutDestroy)          \
  F(cublasLtMatrixLayoutSetAttribute)

// The forms with 64-bit sizes: the others are overloaded, which a table cannot name.
#define MR_CUBLAS_FUNCTIONS(F)     \
  F(cublasCreate)                  \
  F(cublasDestroy)                 \
  F(cublasGemmBatchedEx_64)        \
  F(cublasGemmEx_64)               \
  F(cublasGemmStridedBatchedEx_64) \
  F(cublasGetVersion)              \
  F(cublasSetMathMode)             \
  F(cublasSetPointerMode)          \
  F(cublasSetStream)               \
  F(cublasSetWorkspace)

#define MR_CUDNN_FUNCTIONS(F)                                 \
  F(cudnnActivationBackward)                                  \
  F(cudnnActivationForward)                                   \
  F(cudnnAddTensor)                                           \
  F(cudnnBackendCreateDescriptor)                             \
  F(cudnnBackendDestroyDescriptor)                            \
  F(cudnnBackendExecute)                                      \
  F(cudnnBackendFinalize)                                     \
  F(cudnnBackendGetAttribute)                                 \
  F(cudnnBackendSetAttribute)                                 \
  F(cudnnBatchNormalizationBackward)                          \
  F(cudnnBatchNormalizationBackwardEx)                        \
  F(cudnnBatchNormalizationForwardInference)                  \
  F(cudnnBatchNormalizationForwardTraining)                   \
  F(cudnnBatchNormalizationForwardTrainingEx)                 \
  F(cudnnConvolutionBackwardBias)                             \
  F(cudnnConvolutionBackwardData)                             \
  F(cudnnConvolutionBackwardFilter)                           \
  F(cudnnConvolutionBiasActivationForward)                    \
  F(cudnnConvolutionForward)                                  \
  F(cudnnCreate)                                              \
  F(cudnnCreateActivationDescriptor)                          \
  F(cudnnCreateConvolutionDescriptor)                         \
  F(cudnnCreateFilterDescriptor)                              \
  F(cudnnCreatePoolingDescriptor)                             \
  F(cudnnCreateTensorDescriptor)                              \
  F(cudnnDestroy)                                             \
  F(cudnnDestroyActivationDescriptor)                         \
  F(cudnnDestroyConvolutionDescriptor)                        \
  F(cudnnDestroyFilterDescriptor)                             \
  F(cudnnDestroyPoolingDescriptor)                            \
  F(cudnnDestroyTensorDescriptor)                             \
  F(cudnnGetBatchNormalizationBackwardExWorkspaceSize)        \
  F(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize) \
  F(cudnnGetBatchNormalizationTrainingExReserveSpaceSize)     \
  F(cudnnGetConvolutionBackwardDataAlgorithm_v7)              \
  F(cudnnGetConvolutionBackwardDataWorkspaceSize)             \
  F(cudnnGetConvolutionBackwardFilterAlgorithm_v7)            \
  F(cudnnGetConvolutionBackwardFilterWorkspaceSize)           \
  F(cudnnGetConvolutionForwardAlgorithm_v7)                   \
  F(cudnnGetConvolutionForwardWorkspaceSize)                  \
  F(cudnnGetErrorString)                                      \
  F(cudnnGetVersion)                                          \
  F(cudnnPoolingBackward)                                     \
  F(cudnnPoolingForward)                                      \
  F(cudnnSetActivationDescriptor)                             \
  F(cudnnSetConvolutionGroupCount)                            \
  F(cudnnSetConvolutionMathType)                              \
  F(cudnnSetConvolutionNdDescriptor)                          \
  F(cudnnSetConvolution2dDescriptor)                          \
  F(cudnnSetFilter4dDescriptor)                               \
  F(cudnnSetFilterNdDescriptor)                               \
  F(cudnnSetPooling2dDescriptor)                              \
  F(cudnnSetPoolingNdDescriptor)                              \
  F(cudnnSetStream)                                           \
  F(cudnnSetTensor4dDescriptor)                               \
  F(cudnnSetTensor4dDescriptorEx)                             \
  F(cudnnSetTensorNdDescriptor)                               \
  F(cudnnSoftmaxBackward)                                     \
  F(cudnnSoftmaxForward)

#define MR_NCCL_FUNCTIONS(F) \
  F(ncclAllGather)           \
  F(ncclAllReduce)           \
  F(ncclBroadcast)           \
  F(ncclCommAbort)           \
  F(ncclCommDestroy)         \
  F(ncclCommGetAsyncError)   \
  F(ncclCommInitAll)         \
  F(ncclCommInitRankConfig)  \
  F(ncclGetErrorString)      \
  F(ncclGetUniqueId)         \
  F(ncclGetVersion)          \
  F(ncclGroupEnd)            \
  F(ncclGroupStart)          \
  F(ncclReduceScatter)

#define MR_CUDA_MEMBER(function) decltype(&::function) function = nullptr;
struct CudaDriverLibrary {
  MR_CUDA_DRIVER_FUNCTIONS(MR_CUDA_MEMBER)
};
struct CublasLtLibrary {
  MR_CUBLASLT_FUNCTIONS(MR_CUDA_MEMBER)
};
struct CublasLibrary {
  MR_CUBLAS_FUNCTIONS(MR_CUDA_MEMBER)
};
struct CudnnLibrary {
  MR_CUDNN_FUNCTIONS(MR_CUDA_MEMBER)
};
struct NcclLibrary {
  MR_NCCL_FUNCTIONS(MR_CUDA_MEMBER)
};
#undef MR_CUDA_MEMBER

// Loaded at the first call, which alone looks for them: libcuda.so.1, libcublasLt.so.13,
// libcublas.so.13, libcudnn.so.9, libnccl.so.2. NotFound with what was tried and what to do;
// FailedPrecondition for a library that lacks a function. Thread-safe.
StatusOr<const CudaDriverLibrary*> GetCudaDriver();
StatusOr<const CublasLtLibrary*> GetCublasLt();
StatusOr<const CublasLibrary*> GetCublas();
StatusOr<const CudnnLibrary*> GetCudnn();
StatusOr<const NcclLibrary*> GetNccl();

// OK, ResourceExhausted for want of memory, or Internal with the call and the name of the error.
Status CudaStatus(cudaError_t result, const char* call);
Status CudaDriverStatus(CUresult result, const char* call);
Status CublasStatus(cublasStatus_t result, const char* call);
Status CudnnStatus(cudnnStatus_t result, const char* call);
Status NcclStatus(ncclResult_t result, const char* call);

}  // namespace millrace

#endif  // DEVICE_CUDA_DRIVER_CUDA_LIBRARIES_H_
