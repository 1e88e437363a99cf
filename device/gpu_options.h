// SPDX-License-Identifier: Apache-2.0
// ConfigProto.gpu_options, as far as it is about memory and which devices there are.
#ifndef DEVICE_GPU_OPTIONS_H_
#define DEVICE_GPU_OPTIONS_H_

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "millrace/status.h"
#include "proto/config.pb.h"

namespace millrace {

// What is asked of accelerators with memory of their own. Where several tasks of a process use
// the same machine, the first of them decides.
struct AcceleratorOptions {
  double memory_fraction = 0;     // of the memory of each; 0: what is free
  bool allow_growth = false;      // memory is taken as it is needed, not all at once
  std::string visible_devices{};  // "1,0": which there are, in which order; "": all
  // For each visible one the memory, in bytes, of the devices that it is divided into; empty, or
  // an empty list: one device.
  std::vector<std::vector<int64_t>> virtual_devices{};
  friend auto operator<=>(const AcceleratorOptions&, const AcceleratorOptions&) = default;
};

// InvalidArgument for a fraction out of [0, 1] (0: what is free), and for virtual devices without
// memory.
StatusOr<AcceleratorOptions> AcceleratorOptionsFrom(const pb::GPUOptions& options);

}  // namespace millrace

#endif  // DEVICE_GPU_OPTIONS_H_
