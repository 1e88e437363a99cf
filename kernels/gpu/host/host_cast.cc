// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/cast_loops.h"

namespace millrace::gpu {

template Outcome RunCast<HostLauncher>(Queue, const CastParams&);

}  // namespace millrace::gpu
