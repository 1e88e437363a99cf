// SPDX-License-Identifier: Apache-2.0
#include "kernels/gpu/host/host_launcher.h"
#include "kernels/gpu/loops/segment_loops.h"
#include "kernels/gpu/loops/unique_loops.h"

namespace millrace::gpu {

template Outcome RunSegment<HostLauncher>(Queue, const SegmentParams&);
template Outcome RunSortRows<HostLauncher>(Queue, const SortRowsParams&);
template Outcome RunSegmentGrad<HostLauncher>(Queue, const SegmentGradParams&);
template Outcome RunUnique<HostLauncher>(Queue, const UniqueParams&);
template Outcome RunCollect<HostLauncher>(Queue, const CollectParams&);

}  // namespace millrace::gpu
