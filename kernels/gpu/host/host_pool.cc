// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/pool_loops.h"

namespace millrace::gpu {

template Outcome RunPool<HostLauncher>(Queue, const PoolParams&);

}  // namespace millrace::gpu
