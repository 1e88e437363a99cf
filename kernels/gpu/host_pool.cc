#include "kernels/gpu/host_launcher.h"
#include "kernels/gpu/pool_loops.h"

namespace millrace::gpu {

template Outcome RunPool<HostLauncher>(Queue, const PoolParams&);

}  // namespace millrace::gpu
