// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_launcher.h"
#include "kernels/gpu/loops/segment_loops.h"
#include "kernels/gpu/loops/unique_loops.h"

namespace millrace::gpu {

template Outcome RunSegment<CudaLauncher>(Queue, const SegmentParams&);
template Outcome RunSortRows<CudaLauncher>(Queue, const SortRowsParams&);
template Outcome RunSegmentGrad<CudaLauncher>(Queue, const SegmentGradParams&);
template Outcome RunUnique<CudaLauncher>(Queue, const UniqueParams&);
template Outcome RunCollect<CudaLauncher>(Queue, const CollectParams&);

}  // namespace millrace::gpu
