// The computations that a GPU's kernels are made of, as plain data: a table of functions takes
// them, one for the host (tests) and one for CUDA. Addresses are of the launcher's memory;
// sizes and strides are in elements. Functions return before anything has run.
#ifndef KERNELS_GPU_LOOPS_H_
#define KERNELS_GPU_LOOPS_H_

#include <cstdint>

#include "kernels/gpu/index_map.h"
#include "kernels/gpu/numbers.h"

namespace millrace::gpu {

// Where loops run: a cudaStream_t for CUDA, null for the host.
struct Queue {
  void* stream = nullptr;
};

// clang-format off
#define MR_GPU_UNARY_OPS(X) \
  X(Abs) X(Neg) X(Sign) X(Square) X(Exp) X(Expm1) X(Log) X(Log1p) X(Sqrt) X(Rsqrt) \
  X(Reciprocal) X(Tanh) X(Sigmoid) X(Sin) X(Cos) X(Tan) X(Asin) X(Acos) X(Atan) X(Sinh) \
  X(Cosh) X(Asinh) X(Acosh) X(Atanh) X(Erf) X(Erfc) X(Floor) X(Ceil) X(Round) X(IsNan) \
  X(IsInf) X(IsFinite) X(LogicalNot) X(Relu) X(Relu6) X(Elu) X(Selu) X(LeakyRelu) \
  X(Softplus) X(Softsign)

#define MR_GPU_BINARY_OPS(X) \
  X(Add) X(Sub) X(Mul) X(Div) X(DivNoNan) X(MulNoNan) X(FloorDiv) X(FloorMod) \
  X(TruncateMod) X(Maximum) X(Minimum) X(Pow) X(SquaredDifference) X(Atan2) X(Xdivy) \
  X(Xlogy) X(Xlog1py) X(Less) X(LessEqual) X(Greater) X(GreaterEqual) X(Equal) X(NotEqual) \
  X(LogicalAnd) X(LogicalOr) X(SigmoidGrad) X(TanhGrad) X(SqrtGrad) X(RsqrtGrad) \
  X(ReciprocalGrad) X(ReluGrad) X(Relu6Grad) X(EluGrad) X(SeluGrad) X(LeakyReluGrad) \
  X(SoftplusGrad) X(SoftsignGrad)
// clang-format on

#define MR_GPU_ENUMERATOR(Name) k##Name,
enum class UnaryOp { MR_GPU_UNARY_OPS(MR_GPU_ENUMERATOR) };
enum class BinaryOp { MR_GPU_BINARY_OPS(MR_GPU_ENUMERATOR) };
#undef MR_GPU_ENUMERATOR

// out[i] = op(in[i]); `out` may be `in`. alpha is that of LeakyRelu.
struct UnaryParams {
  UnaryOp op{};
  DataType type = DataType::kInvalid;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t n = 0;
  float alpha = 0;
};

// out[i] = op(a[...], b[...]). `out` may be an operand that is not repeated.
struct BinaryParams {
  BinaryOp op{};
  DataType type = DataType::kInvalid;
  const void *a = nullptr, *b = nullptr;
  void* out = nullptr;
  int64_t n = 0;
  float alpha = 0;
  // kFlat: operands are as the output, or one element where a_step or b_step is 0.
  bool flat = true;
  int a_step = 1, b_step = 1;
  IndexMap<2> map;  // where not flat
};

struct CastParams {
  DataType from = DataType::kInvalid, to = DataType::kInvalid;
  bool truncate = false;  // floats to bfloat16
  const void* in = nullptr;
  void* out = nullptr;
  int64_t n = 0;
};

// out[i] = cond[...] ? a[...] : b[...], elements of `size` bytes.
struct SelectParams {
  int size = 0;
  const bool* cond = nullptr;
  const void *a = nullptr, *b = nullptr;
  void* out = nullptr;
  IndexMap<3> map;
};

// to[...] = from[...], elements of `size` bytes.
struct CopyParams {
  int size = 0;
  const void* from = nullptr;
  void* to = nullptr;
  IndexMap<2> map;  // from, to
};

// All elements become `value`, or, where it is not null, what lies at `from`.
struct FillParams {
  int size = 0;
  void* to = nullptr;
  int64_t n = 0;
  uint64_t value[2] = {};
  const void* from = nullptr;
};

// out[i] = in[0][i] + in[1][i] + ...
struct SumOfParams {
  static constexpr int kMost = 8;
  DataType type = DataType::kInvalid;
  int count = 0;
  const void* in[kMost] = {};
  void* out = nullptr;
  int64_t n = 0;
};

// Limits are one element where their step is 0.
struct ClipParams {
  DataType type = DataType::kInvalid;
  const void *in = nullptr, *low = nullptr, *high = nullptr;
  int low_step = 0, high_step = 0;
  void* out = nullptr;
  int64_t n = 0;
};

// out[i] = i < n - 1 ? start + step * i : stop, in the order of LinSpace.
struct LinSpaceParams {
  DataType type = DataType::kInvalid;
  double start = 0, stop = 0;
  void* out = nullptr;
  int64_t n = 0;
};

enum class ReduceOp { kSum, kProd, kMax, kMin, kAll, kAny, kSquares };
enum class ReduceFinish { kNone, kMean, kHalf, kRoot };

// out[o] = finish(op over r of in[kept(o) + reduced(r)]).
struct ReduceParams {
  ReduceOp op{};
  ReduceFinish finish{};
  DataType type = DataType::kInvalid;
  const void* in = nullptr;
  void* out = nullptr;
  IndexMap<1> kept, reduced;
  // Each output's elements are shared between this many partial results, which scratch holds as
  // [chunks, outputs] in the compute type.
  int64_t chunks = 1;
  void* scratch = nullptr;
  // Neighbouring threads take neighbouring outputs instead of neighbouring elements.
  bool by_column = false;
};

// The first of the largest (smallest) of `size` elements `inner` apart.
struct ArgParams {
  bool largest = true;
  DataType type = DataType::kInvalid, index_type = DataType::kInvalid;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t outer = 0, size = 0, inner = 0;
};

struct ScanParams {
  bool product = false, exclusive = false, reverse = false;
  DataType type = DataType::kInvalid;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t outer = 0, size = 0, inner = 0;
};

struct SoftmaxParams {
  bool log = false;
  DataType type = DataType::kInvalid;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t rows = 0, n = 0;
};

// loss[i] and backprop[i, :] of logits and labels [rows, n]; a step of 0 repeats. With
// label_type, labels are one class per row; a class that is none makes NaN.
struct CrossEntropyParams {
  DataType type = DataType::kInvalid, label_type = DataType::kInvalid;
  const void *logits = nullptr, *labels = nullptr;
  int64_t x_row = 0, x_column = 1, y_row = 0, y_column = 1;
  void *loss = nullptr, *backprop = nullptr;
  int64_t rows = 0, n = 0;
};

// out is [batches, outer, per_batch, inner], in is [batches, outer, limit, inner], indices are
// [batches, per_batch]. Rows out of range become zeros.
struct GatherParams {
  int size = 0;
  DataType index_type = DataType::kInvalid;
  const void *in = nullptr, *indices = nullptr;
  void* out = nullptr;
  int64_t batches = 1, outer = 1, per_batch = 0, limit = 0, inner = 1;
};

// out[i, :] = in[indices[i, 0], ..., indices[i, depth - 1], :], zeros where there is no such row.
struct GatherNdParams {
  int size = 0;
  DataType index_type = DataType::kInvalid;
  const void *in = nullptr, *indices = nullptr;
  void* out = nullptr;
  int64_t count = 0, inner = 1;
  int depth = 0;
  int64_t dims[kMaxAxes] = {};
};

enum class ScatterOp { kSet, kAdd, kSub, kMul, kMin, kMax, kOr };

// out[row(i), :] = op(out[row(i), :], updates[i, :]) for i in [0, count), in this order for each
// row, whatever the threads: updates are sorted by row first. row(i) is made of `depth` indices
// into `dims`; where one is out of range, update i is left out.
struct ScatterParams {
  ScatterOp op{};
  DataType type = DataType::kInvalid, index_type = DataType::kInvalid;
  const void *indices = nullptr, *updates = nullptr;
  int update_step = 1;  // 0: one element for all
  void* out = nullptr;
  int64_t count = 0, inner = 1;
  int depth = 1;
  int64_t dims[kMaxAxes] = {};
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;
};

// out = off, and on where the index says so; [outer, depth, inner].
struct OneHotParams {
  int size = 0;
  DataType index_type = DataType::kInvalid;
  const void *indices = nullptr, *on = nullptr, *off = nullptr;
  void* out = nullptr;
  int64_t outer = 0, depth = 0, inner = 0;
};

// Keeps a band of matrices of rows x columns; negative counts keep all of a triangle.
struct BandParams {
  int size = 0;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t matrices = 0, rows = 0, columns = 0, lower = -1, upper = -1;
};

struct InTopKParams {
  DataType index_type = DataType::kInvalid;
  const float* predictions = nullptr;
  const void* targets = nullptr;
  bool* out = nullptr;
  int64_t rows = 0, classes = 0, k = 0;
};

// The k largest of each row, the largest first, of equal ones the first; NaN is the largest.
struct TopKParams {
  DataType type = DataType::kInvalid, index_type = DataType::kInvalid;
  const void* in = nullptr;
  void *values = nullptr, *indices = nullptr;
  int64_t rows = 0, n = 0, k = 0;
};

// Pads by reflection: out[i] = in[i - before], past an edge counted back from it. `skip` is 1
// where the element at the edge is not repeated. The gradient adds up what was copied: then `in`
// is of the padded size, and `out` is not.
struct MirrorParams {
  DataType type = DataType::kInvalid;  // of the gradient
  int size = 0;                        // of elements that are copied
  const void* in = nullptr;
  void* out = nullptr;
  int rank = 0;
  int64_t dims[kMaxAxes] = {};  // without the padding
  int64_t before[kMaxAxes] = {};
  int64_t padded[kMaxAxes] = {};  // dims with it
  int64_t n = 0;                  // outputs
  int skip = 0;
};

// Local response normalization of pixels of `depth` channels, or its gradient `dx`.
struct LrnParams {
  DataType type = DataType::kInvalid;
  const void *in = nullptr, *out_image = nullptr, *gradient = nullptr;
  void* out = nullptr;
  int64_t pixels = 0, depth = 0, radius = 0;
  float bias = 0, alpha = 0, beta = 0;
};

enum class RandomKind { kUniform, kNormal, kTruncatedNormal, kUniformInt };

// TensorFlow's bits, from a Philox generator at `counter` under `key`.
struct RandomParams {
  RandomKind kind{};
  DataType type = DataType::kInvalid;
  uint32_t counter[4] = {}, key[2] = {};
  void* out = nullptr;
  int64_t n = 0;
  int64_t low = 0;     // of integers
  uint64_t range = 1;  // of integers
};

enum class UpdateRule {
  kGradientDescent,
  kMomentum,
  kKerasMomentum,
  kAdagrad,
  kAdagradV2,
  kAdadelta,
  kRmsProp,
  kCenteredRmsProp,
  kAdam,
  kAdaMax,
  kAmsgrad,
  kFtrl,
  kFtrlV2,
  kProximalGradientDescent,
  kProximalAdagrad,
};

// One step of an optimizer, in place; scalars lie in the launcher's memory.
struct UpdateParams {
  static constexpr int kMostSlots = 3, kMostScalars = 6;
  UpdateRule rule{};
  DataType type = DataType::kInvalid;
  void* var = nullptr;
  void* slots[kMostSlots] = {};
  const void* scalars[kMostScalars] = {};
  const void* gradient = nullptr;
  int64_t n = 0;
  bool use_nesterov = false, update_slots = true, multiply_linear_by_lr = false;
  // SparseUpdate: of rows of `inner` elements, those that indices name, in their order for each
  // row; indices that are out of range are left out. n is the number of gradients' elements.
  DataType index_type = DataType::kInvalid;
  const void* indices = nullptr;
  int64_t count = 0, inner = 1, rows = 0;
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;  // as for scatters
};

// A spatial axis: output o sees inputs o * stride - pad + t * dilation for t in [0, size).
struct WindowParams {
  int64_t input = 0, output = 0, size = 1, stride = 1, dilation = 1, pad = 0;
};
// Where element (batch, y, x, channel) of images lies.
struct ImageStrides {
  int64_t batch = 0, y = 0, x = 0, channel = 0;
};

enum class PoolKind { kMax, kMaxGrad, kAverage, kAverageGrad };

// `in` are the images that the windows slide over (not used by kAverageGrad), `gradient` is of
// the pooled ones; the output is pooled images, or, for gradients, images.
struct PoolParams {
  PoolKind kind{};
  DataType type = DataType::kInvalid;
  const void *in = nullptr, *gradient = nullptr;
  void* out = nullptr;
  int64_t batch = 0, channels = 0;
  WindowParams rows, cols;
  ImageStrides image, pooled;
};

enum class ConvKind { kForward, kInput, kFilter };

// A convolution in groups, element by element: for what the vendor's library does not do. The
// filter is [rows, columns, channels / groups, outputs].
struct ConvParams {
  ConvKind kind{};
  DataType type = DataType::kInvalid;
  const void *images = nullptr, *filter = nullptr, *made = nullptr;
  void* out = nullptr;  // what `kind` says
  int64_t batch = 0, channels = 0, outputs = 0, groups = 1;
  WindowParams rows, cols;
  ImageStrides image, output;
};

// c[i, j] = sum over q of a[i, q] * b[q, j], for each of count matrices; element by element, for
// what the vendor's library does not do.
struct MatMulParams {
  DataType type = DataType::kInvalid;
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0;
  int64_t count = 1;
  IndexMap<2> batches;  // offsets of a and b, in elements
};

// Images as [outer, channels, inner]. Statistics are floats.
struct BatchNormParams {
  DataType type = DataType::kInvalid;
  int64_t outer = 0, channels = 0, inner = 0;
  bool training = true;
  float epsilon = 0, factor = 1;
  const void* x = nullptr;
  const float *scale = nullptr, *offset = nullptr;
  const float *old_mean = nullptr, *old_variance = nullptr;
  void* y = nullptr;
  float *mean = nullptr, *variance = nullptr;              // the running ones
  float *batch_mean = nullptr, *batch_variance = nullptr;  // those that were used
  // Gradient: x, scale, old_mean and old_variance as used by the step forwards.
  const void* dy = nullptr;
  void* dx = nullptr;
  float *d_scale = nullptr, *d_offset = nullptr;
  // Where inner is 1: parts of a channel that are summed up apart, and (2 * chunks + 3) * channels
  // floats for them.
  int64_t chunks = 1;
  void* scratch = nullptr;
};

#define MR_GPU_LOOPS(X)               \
  X(Unary, UnaryParams)               \
  X(Binary, BinaryParams)             \
  X(Compare, BinaryParams)            \
  X(BinaryGrad, BinaryParams)         \
  X(Cast, CastParams)                 \
  X(Select, SelectParams)             \
  X(Copy, CopyParams)                 \
  X(Fill, FillParams)                 \
  X(SumOf, SumOfParams)               \
  X(Clip, ClipParams)                 \
  X(LinSpace, LinSpaceParams)         \
  X(Reduce, ReduceParams)             \
  X(Arg, ArgParams)                   \
  X(Scan, ScanParams)                 \
  X(Softmax, SoftmaxParams)           \
  X(CrossEntropy, CrossEntropyParams) \
  X(Gather, GatherParams)             \
  X(GatherNd, GatherNdParams)         \
  X(Scatter, ScatterParams)           \
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
  X(BatchNormGrad, BatchNormParams)

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

#endif  // KERNELS_GPU_LOOPS_H_
