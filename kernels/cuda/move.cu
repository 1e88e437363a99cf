// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/loops/move_loops.h"
#include "kernels/gpu/loops/transpose_loops.h"

namespace millrace::gpu {

template Outcome RunSelect<CudaLauncher>(Queue, const SelectParams&);
template Outcome RunCopy<CudaLauncher>(Queue, const CopyParams&);
template Outcome RunTranspose<CudaLauncher>(Queue, const TransposeParams&);
template Outcome RunFill<CudaLauncher>(Queue, const FillParams&);
template Outcome RunSumOf<CudaLauncher>(Queue, const SumOfParams&);
template Outcome RunClip<CudaLauncher>(Queue, const ClipParams&);
template Outcome RunLinSpace<CudaLauncher>(Queue, const LinSpaceParams&);
template Outcome RunOneHot<CudaLauncher>(Queue, const OneHotParams&);
template Outcome RunBand<CudaLauncher>(Queue, const BandParams&);

}  // namespace millrace::gpu
