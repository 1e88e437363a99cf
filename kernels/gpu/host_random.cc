#include "kernels/gpu/host_launcher.h"
#include "kernels/gpu/random_loops.h"

namespace millrace::gpu {

template Outcome RunRandom<HostLauncher>(Queue, const RandomParams&);

}  // namespace millrace::gpu
