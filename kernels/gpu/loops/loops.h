// SPDX-License-Identifier: Apache-2.0
// The computations that a GPU's kernels are made of, as plain data: a table of functions takes
// them, one for the host (tests) and one for CUDA. Addresses are of the launcher's memory;
// sizes and strides are in elements. Functions return before anything has run.
#ifndef KERNELS_GPU_LOOPS_LOOPS_H_
#define KERNELS_GPU_LOOPS_LOOPS_H_

#include <cstdint>

#include "kernels/gpu/loops/elementwise_params.h"
#include "kernels/gpu/loops/move_params.h"
#include "kernels/gpu/loops/numbers.h"
#include "kernels/gpu/loops/row_params.h"
#include "kernels/gpu/loops/segment_params.h"
#include "kernels/gpu/loops/update_params.h"
#include "kernels/gpu/loops/window_params.h"

namespace millrace::gpu {

// Where loops run: a cudaStream_t for CUDA, null for the host.
struct Queue {
  void* stream = nullptr;
};

#define MR_GPU_LOOPS(X)               \
  X(Unary, UnaryParams)               \
  X(Binary, BinaryParams)             \
  X(Compare, BinaryParams)            \
  X(BinaryGrad, BinaryParams)         \
  X(Cast, CastParams)                 \
  X(Select, SelectParams)             \
  X(Copy, CopyParams)                 \
  X(Transpose, TransposeParams)       \
  X(Fill, FillParams)                 \
  X(SumOf, SumOfParams)               \
  X(Clip, ClipParams)                 \
  X(LinSpace, LinSpaceParams)         \
  X(Check, CheckParams)               \
  X(Reduce, ReduceParams)             \
  X(Arg, ArgParams)                   \
  X(Scan, ScanParams)                 \
  X(Softmax, SoftmaxParams)           \
  X(CrossEntropy, CrossEntropyParams) \
  X(Gather, GatherParams)             \
  X(GatherNd, GatherNdParams)         \
  X(Scatter, ScatterParams)           \
  X(Segment, SegmentParams)           \
  X(SegmentGrad, SegmentGradParams)   \
  X(SortRows, SortRowsParams)         \
  X(Unique, UniqueParams)             \
  X(Collect, CollectParams)           \
  X(OneHot, OneHotParams)             \
  X(Band, BandParams)                 \
  X(InTopK, InTopKParams)             \
  X(TopK, TopKParams)                 \
  X(MirrorPad, MirrorParams)          \
  X(MirrorPadGrad, MirrorParams)      \
  X(Lrn, LrnParams)                   \
  X(LrnGrad, LrnParams)               \
  X(Random, RandomParams)             \
  X(Update, UpdateParams)             \
  X(SparseUpdate, UpdateParams)       \
  X(Pool, PoolParams)                 \
  X(Conv, ConvParams)                 \
  X(MatMul, MatMulParams)             \
  X(BatchNorm, BatchNormParams)       \
  X(BatchNormGrad, BatchNormParams)   \
  X(Spread, SpreadParams)

// Defined in *_loops.h, instantiated for a launcher in one .cc or .cu each.
#define MR_GPU_DECLARE(Name, Params) \
  template <typename Launcher>       \
  Outcome Run##Name(Queue queue, const Params& p);
MR_GPU_LOOPS(MR_GPU_DECLARE)
#undef MR_GPU_DECLARE
template <typename Launcher>
int64_t ScatterScratchBytes(int64_t count);

struct Loops {
#define MR_GPU_ENTRY(Name, Params) Outcome (*Name)(Queue queue, const Params& p);
  MR_GPU_LOOPS(MR_GPU_ENTRY)
#undef MR_GPU_ENTRY
  // What ScatterParams::scratch must hold for `count` updates.
  int64_t (*scatter_scratch_bytes)(int64_t count);
};

template <typename Launcher>
constexpr Loops MakeLoops() {
  return {
#define MR_GPU_ADDRESS(Name, Params) &Run##Name<Launcher>,
      MR_GPU_LOOPS(MR_GPU_ADDRESS)
#undef MR_GPU_ADDRESS
      & ScatterScratchBytes<Launcher>};
}

// On this thread; for tests.
const Loops& HostLoops();

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_LOOPS_H_
