#include "kernels/gpu/host_launcher.h"
#include "kernels/gpu/reduce_loops.h"

namespace millrace::gpu {

template Outcome RunReduce<HostLauncher>(Queue, const ReduceParams&);
template Outcome RunArg<HostLauncher>(Queue, const ArgParams&);
template Outcome RunScan<HostLauncher>(Queue, const ScanParams&);

}  // namespace millrace::gpu
