// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/index_loops.h"

namespace millrace::gpu {

template Outcome RunGather<HostLauncher>(Queue, const GatherParams&);
template Outcome RunGatherNd<HostLauncher>(Queue, const GatherNdParams&);
template Outcome RunScatter<HostLauncher>(Queue, const ScatterParams&);
template int64_t ScatterScratchBytes<HostLauncher>(int64_t);

}  // namespace millrace::gpu
