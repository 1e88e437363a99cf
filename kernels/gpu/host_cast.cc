#include "kernels/gpu/cast_loops.h"
#include "kernels/gpu/host_launcher.h"

namespace millrace::gpu {

template Outcome RunCast<HostLauncher>(Queue, const CastParams&);

}  // namespace millrace::gpu
