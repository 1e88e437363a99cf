#include "kernels/gpu/binary_loops.h"
#include "kernels/gpu/host_launcher.h"

namespace millrace::gpu {

template Outcome RunBinary<HostLauncher>(Queue, const BinaryParams&);
template Outcome RunCompare<HostLauncher>(Queue, const BinaryParams&);
template Outcome RunBinaryGrad<HostLauncher>(Queue, const BinaryParams&);

}  // namespace millrace::gpu
