// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/arg_loops.h"
#include "kernels/gpu/loops/scan_loops.h"

namespace millrace::gpu {

template Outcome RunArg<HostLauncher>(Queue, const ArgParams&);
template Outcome RunScan<HostLauncher>(Queue, const ScanParams&);

}  // namespace millrace::gpu
