#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/cast_loops.h"

namespace millrace::gpu {

template Outcome RunCast<HostLauncher>(Queue, const CastParams&);

}  // namespace millrace::gpu
