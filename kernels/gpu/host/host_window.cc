// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/window_loops.h"

namespace millrace::gpu {

template Outcome RunConv<HostLauncher>(Queue, const ConvParams&);
template Outcome RunMatMul<HostLauncher>(Queue, const MatMulParams&);

}  // namespace millrace::gpu
