// SPDX-License-Identifier: Apache-2.0
// What kernels see of a CUDA device. No header of CUDA is included: pointers are opaque, and what
// they are is said beside them.
#ifndef DEVICE_CUDA_DRIVER_CUDA_MACHINE_H_
#define DEVICE_CUDA_DRIVER_CUDA_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "device/stream.h"
#include "millrace/status.h"

namespace millrace {

class CudaDriver;

// Facts about the GPU behind a machine.
struct CudaProperties {
  int ordinal = 0;                  // as the driver counts
  std::string name;                 // "NVIDIA H200"
  std::string pci_bus_id;           // "0000:1b:00.0"
  int compute_capability = 0;       // 90 for 9.0
  int num_multiprocessors = 0;      // SMs
  int64_t memory = 0;               // bytes in all
  int64_t l2_cache = 0;             // bytes
  int shared_memory_per_block = 0;  // bytes, the most that a kernel may ask for
};

// How kernels may compute. Of the process; constant while there are machines.
struct CudaMathOptions {
  // float32 products in TensorFloat-32 (19 bits) where the device has it. MILLRACE_CUDA_TF32=1.
  bool tf32 = false;
  // Only algorithms that give the same bits every time. MILLRACE_DETERMINISTIC=1 or TensorFlow's
  // TF_DETERMINISTIC_OPS=1.
  bool deterministic = false;
  // Bytes: the most that a convolution may take beside its operands.
  // TF_CUDNN_WORKSPACE_LIMIT_IN_MB.
  int64_t convolution_workspace = int64_t{4} << 30;
  friend bool operator==(const CudaMathOptions&, const CudaMathOptions&) = default;
};

// The machine of one device "GPU". Everything here is thread-safe.
//
// The `run` of a Stream::Operation is called by the thread that enqueues it, with the device's
// context current, to issue kernels and calls of libraries into compute_stream(); it must not
// wait for them. It may be called by several threads at once, each for an operation of its own.
// What it owns is freed when what it issued has run. A status that is not OK says that it could
// not be issued. Errors of kernels that ran are found later, and told by the stream.
class CudaMachine : public Accelerator {
 public:
  virtual const CudaProperties& properties() const = 0;
  virtual const CudaMathOptions& math() const = 0;
  virtual CudaDriver* driver() = 0;

  // The compute stream: cudaStream_t, which is a CUstream.
  virtual void* compute_stream() = 0;
  // Makes the primary context of the device current in this thread: for calls outside of `run`.
  virtual Status MakeCurrent() = 0;

  // Only within `run`. Handles bound to the compute stream, for this operation alone until `run`
  // returns. The error says which library is missing. cublasLtHandle_t, cublasHandle_t,
  // cudnnHandle_t.
  virtual StatusOr<void*> cublaslt() = 0;
  virtual StatusOr<void*> cublas() = 0;
  virtual StatusOr<void*> cudnn() = 0;
  // Only within `run`. Device memory, aligned to 256 bytes, for what the operation issues: given
  // back in the order of the stream when `run` returns. ResourceExhausted without memory.
  virtual StatusOr<void*> Workspace(std::size_t bytes) = 0;
};

// For devices of type "GPU".
inline CudaMachine* CudaMachineOf(const Device* device) {
  return static_cast<CudaMachine*>(AcceleratorOf(device));
}

}  // namespace millrace

#endif  // DEVICE_CUDA_DRIVER_CUDA_MACHINE_H_
