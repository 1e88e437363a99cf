// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/move_loops.h"
#include "kernels/gpu/loops/transpose_loops.h"

namespace millrace::gpu {

template Outcome RunSelect<HostLauncher>(Queue, const SelectParams&);
template Outcome RunCopy<HostLauncher>(Queue, const CopyParams&);
template Outcome RunTranspose<HostLauncher>(Queue, const TransposeParams&);
template Outcome RunFill<HostLauncher>(Queue, const FillParams&);
template Outcome RunSumOf<HostLauncher>(Queue, const SumOfParams&);
template Outcome RunClip<HostLauncher>(Queue, const ClipParams&);
template Outcome RunLinSpace<HostLauncher>(Queue, const LinSpaceParams&);
template Outcome RunOneHot<HostLauncher>(Queue, const OneHotParams&);
template Outcome RunBand<HostLauncher>(Queue, const BandParams&);

}  // namespace millrace::gpu
