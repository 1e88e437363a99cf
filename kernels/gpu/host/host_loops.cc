// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {

const Loops& HostLoops() {
  static constexpr Loops kLoops = MakeLoops<HostLauncher>();
  return kLoops;
}

}  // namespace millrace::gpu
