// SPDX-License-Identifier: Apache-2.0
// The functions of libcuda.so.1 that the device calls, by the names that they have in the library.
// Handles are pointers, enumerations are int, device addresses are 64-bit integers.
#ifndef DEVICE_CUDA_DRIVER_DRIVER_CALLS_H_
#define DEVICE_CUDA_DRIVER_DRIVER_CALLS_H_

#include <cstddef>

namespace millrace {

using DriverAddress = unsigned long long;  // NOLINT: CUdeviceptr

#define MR_DRIVER_CALLS(F)                                                                        \
  F(cuInit, int(unsigned flags))                                                                  \
  F(cuDriverGetVersion, int(int* version))                                                        \
  F(cuGetErrorName, int(int error, const char** name))                                            \
  F(cuGetErrorString, int(int error, const char** text))                                          \
  F(cuDeviceGetCount, int(int* count))                                                            \
  F(cuDeviceGet, int(int* device, int ordinal))                                                   \
  F(cuDeviceGetName, int(char* name, int size, int device))                                       \
  F(cuDeviceGetPCIBusId, int(char* id, int size, int device))                                     \
  F(cuDeviceGetAttribute, int(int* value, int attribute, int device))                             \
  F(cuDeviceTotalMem_v2, int(std::size_t* bytes, int device))                                     \
  F(cuDeviceCanAccessPeer, int(int* can, int device, int peer))                                   \
  F(cuDevicePrimaryCtxRetain, int(void** context, int device))                                    \
  F(cuDevicePrimaryCtxRelease_v2, int(int device))                                                \
  F(cuCtxSetCurrent, int(void* context))                                                          \
  F(cuCtxEnablePeerAccess, int(void* peer, unsigned flags))                                       \
  F(cuMemGetInfo_v2, int(std::size_t* free, std::size_t* total))                                  \
  F(cuMemAlloc_v2, int(DriverAddress * address, std::size_t bytes))                               \
  F(cuMemFree_v2, int(DriverAddress address))                                                     \
  F(cuMemHostAlloc, int(void** memory, std::size_t bytes, unsigned flags))                        \
  F(cuMemFreeHost, int(void* memory))                                                             \
  F(cuMemcpyAsync, int(DriverAddress to, DriverAddress from, std::size_t bytes, void* stream))    \
  F(cuMemsetD8Async, int(DriverAddress to, unsigned char value, std::size_t bytes, void* stream)) \
  F(cuCtxGetStreamPriorityRange, int(int* least, int* greatest))                                  \
  F(cuStreamCreateWithPriority, int(void** stream, unsigned flags, int priority))                 \
  F(cuStreamDestroy_v2, int(void* stream))                                                        \
  F(cuStreamSynchronize, int(void* stream))                                                       \
  F(cuStreamWaitEvent, int(void* stream, void* event, unsigned flags))                            \
  F(cuEventCreate, int(void** event, unsigned flags))                                             \
  F(cuEventDestroy_v2, int(void* event))                                                          \
  F(cuEventRecord, int(void* event, void* stream))                                                \
  F(cuEventQuery, int(void* event))                                                               \
  F(cuStreamBeginCapture_v2, int(void* stream, int mode))                                         \
  F(cuStreamEndCapture, int(void* stream, void** graph))                                          \
  F(cuGraphInstantiateWithFlags, int(void** executable, void* graph, unsigned long long flags))   \
  F(cuGraphLaunch, int(void* executable, void* stream))                                           \
  F(cuGraphDestroy, int(void* graph))                                                             \
  F(cuGraphExecDestroy, int(void* executable))                                                    \
  F(cuModuleLoadDataEx,                                                                           \
    int(void** module, const void* image, unsigned count, int* options, void** values))           \
  F(cuModuleUnload, int(void* module))                                                            \
  F(cuModuleGetFunction, int(void** function, void* module, const char* name))                    \
  F(cuLaunchKernel, int(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,        \
                        unsigned block_x, unsigned block_y, unsigned block_z,                     \
                        unsigned shared_bytes, void* stream, void** arguments, void** extra))

struct DriverCalls {
  template <typename Signature>
  using Call = Signature*;
#define MR_DRIVER_MEMBER(name, ...) Call<__VA_ARGS__> name = nullptr;
  MR_DRIVER_CALLS(MR_DRIVER_MEMBER)
#undef MR_DRIVER_MEMBER
};

}  // namespace millrace

#endif  // DEVICE_CUDA_DRIVER_DRIVER_CALLS_H_
