#include "kernels/gpu/host_launcher.h"
#include "kernels/gpu/loops.h"

namespace millrace::gpu {

const Loops& HostLoops() {
  static constexpr Loops kLoops = MakeLoops<HostLauncher>();
  return kLoops;
}

}  // namespace millrace::gpu
