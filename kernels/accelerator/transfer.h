// SPDX-License-Identifier: Apache-2.0
// Sends and receives at an accelerator, and constants.
#ifndef KERNELS_ACCELERATOR_TRANSFER_H_
#define KERNELS_ACCELERATOR_TRANSFER_H_

#include <string>

#include "kernels/kernel_registry.h"

namespace millrace {

// _Send, _Recv, _HostSend, _HostRecv.
void RegisterAcceleratorTransfers(const std::string& device_type, KernelRegistry& registry);
// Copied to the device by the first step that wants it, and kept there.
std::unique_ptr<Kernel> MakeAcceleratorConst(KernelConstruction& c);

}  // namespace millrace

#endif  // KERNELS_ACCELERATOR_TRANSFER_H_
