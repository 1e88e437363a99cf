#include "kernels/gpu/check_loops.h"
#include "kernels/gpu/host_launcher.h"

namespace millrace::gpu {

template Outcome RunCheck<HostLauncher>(Queue, const CheckParams&);

}  // namespace millrace::gpu
