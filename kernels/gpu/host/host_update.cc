// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/update_loops.h"

namespace millrace::gpu {

template Outcome RunUpdate<HostLauncher>(Queue, const UpdateParams&);
template Outcome RunSparseUpdate<HostLauncher>(Queue, const UpdateParams&);

}  // namespace millrace::gpu
