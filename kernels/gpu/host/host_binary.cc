// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/binary_loops.h"

namespace millrace::gpu {

template Outcome RunBinary<HostLauncher>(Queue, const BinaryParams&);
template Outcome RunCompare<HostLauncher>(Queue, const BinaryParams&);
template Outcome RunBinaryGrad<HostLauncher>(Queue, const BinaryParams&);

}  // namespace millrace::gpu
