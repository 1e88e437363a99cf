// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/image_loops.h"

namespace millrace::gpu {

template Outcome RunMirrorPad<HostLauncher>(Queue, const MirrorParams&);
template Outcome RunMirrorPadGrad<HostLauncher>(Queue, const MirrorParams&);
template Outcome RunLrn<HostLauncher>(Queue, const LrnParams&);
template Outcome RunLrnGrad<HostLauncher>(Queue, const LrnParams&);

}  // namespace millrace::gpu
