#include "kernels/gpu/host_launcher.h"
#include "kernels/gpu/window_loops.h"

namespace millrace::gpu {

template Outcome RunConv<HostLauncher>(Queue, const ConvParams&);
template Outcome RunMatMul<HostLauncher>(Queue, const MatMulParams&);

}  // namespace millrace::gpu
