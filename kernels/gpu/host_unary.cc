#include "kernels/gpu/host_launcher.h"
#include "kernels/gpu/unary_loops.h"

namespace millrace::gpu {

template Outcome RunUnary<HostLauncher>(Queue, const UnaryParams&);

}  // namespace millrace::gpu
