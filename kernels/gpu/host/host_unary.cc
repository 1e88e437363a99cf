// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/unary_loops.h"

namespace millrace::gpu {

template Outcome RunUnary<HostLauncher>(Queue, const UnaryParams&);

}  // namespace millrace::gpu
