// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/check_loops.h"

namespace millrace::gpu {

template Outcome RunCheck<HostLauncher>(Queue, const CheckParams&);

}  // namespace millrace::gpu
