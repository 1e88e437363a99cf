// SPDX-License-Identifier: Apache-2.0
// The kernels that carry values from one device to another through the step's rendezvous.
#ifndef KERNELS_CONTROL_SEND_RECV_H_
#define KERNELS_CONTROL_SEND_RECV_H_

#include "kernels/kernel_registry.h"

namespace millrace {

// _Send, _Recv, _HostSend, _HostRecv.
void RegisterSendRecvKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_CONTROL_SEND_RECV_H_
