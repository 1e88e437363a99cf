// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/random_loops.h"

namespace millrace::gpu {

template Outcome RunRandom<HostLauncher>(Queue, const RandomParams&);

}  // namespace millrace::gpu
