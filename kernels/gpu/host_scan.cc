#include "kernels/gpu/host_launcher.h"
#include "kernels/gpu/scan_loops.h"

namespace millrace::gpu {

template Outcome RunArg<HostLauncher>(Queue, const ArgParams&);
template Outcome RunScan<HostLauncher>(Queue, const ScanParams&);

}  // namespace millrace::gpu
