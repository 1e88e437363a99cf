#include "kernels/gpu/host_launcher.h"
#include "kernels/gpu/reduce_loops.h"

namespace millrace::gpu {

template Outcome RunReduce<HostLauncher>(Queue, const ReduceParams&);

}  // namespace millrace::gpu
