// SPDX-License-Identifier: Apache-2.0
// The error of a machine whose context is lost.
#ifndef DEVICE_CUDA_MACHINE_LOST_MACHINE_H_
#define DEVICE_CUDA_MACHINE_LOST_MACHINE_H_

#include <span>
#include <string>
#include <string_view>

#include "millrace/status.h"

namespace millrace {

// Internal: `cause`, the device, its GPU, and up to eight of the `suspects`, nodes whose operations
// may have caused it; or `cause` as it is if the machine just went away. `blocking`: as it waits
// for every operation, there is no better way to find out which it was.
Status LostMachine(const Status& cause, std::string_view device, std::string_view gpu,
                   std::span<const std::string> suspects, bool blocking);

}  // namespace millrace

#endif  // DEVICE_CUDA_MACHINE_LOST_MACHINE_H_
