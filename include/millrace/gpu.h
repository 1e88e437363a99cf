// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine, and what this process takes of them. docs/gpu.md
#ifndef MILLRACE_GPU_H_
#define MILLRACE_GPU_H_

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/status.h"

namespace millrace {

// One GPU of the machine.
struct GpuInfo {
  std::string description;  // "device: 0, name: NVIDIA H200, ..., compute capability: 9.0"
  int64_t memory = 0;       // bytes
};

// All that there are. Unimplemented in a program that was built without CUDA; NotFound, with what
// is missing and what to do, without a driver or without a GPU.
StatusOr<std::vector<GpuInfo>> FindGpus();

// For the sessions and servers of this process whose configuration says nothing of GPUs, in fields
// of SessionOptions and ServerOptions or in a ConfigProto.
struct GpuOptions {
  // -1: all that there are, which may be none. More than 0: as many.
  int count = -1;
  double memory_fraction = 0;  // of each GPU's memory; 0: what is free
  bool allow_growth = false;   // take memory as it is needed, not all at once
  std::string visible{};       // "1,0": which GPUs, in which order; "": all
};
// To be called before sessions and servers are made. InvalidArgument for options that cannot be;
// if `count` is more than 0 and there are fewer, the error says what is missing, and the options
// are those of before. Thread-safe.
Status SetGpuOptions(const GpuOptions& options);

}  // namespace millrace

#endif  // MILLRACE_GPU_H_
