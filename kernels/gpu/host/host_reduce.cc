// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/reduce_loops.h"

namespace millrace::gpu {

template Outcome RunReduce<HostLauncher>(Queue, const ReduceParams&);

}  // namespace millrace::gpu
