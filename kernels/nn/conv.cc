// Conv2D and its gradients. float goes to code that oneDNN compiles for the geometry, a few
// images at a time. The rest, and what oneDNN has no good code for, are matrix products over
// patches ("im2col"): a matrix with one row per output position and one column per filter tap
// is made for a part of an image at a time, small enough to stay in cache.
#include <algorithm>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/gemm.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/nn/epilogue.h"
#include "kernels/nn/onednn_conv.h"
#include "kernels/nn/window.h"

namespace millrace {
namespace {

using Geometry = ConvGeometry;

// A depthwise filter [rows, columns, channels, outputs per channel] is one for as many groups
// as there are channels: its elements lie just so.
StatusOr<Geometry> MakeGeometry(const WindowAttrs& attrs, bool depthwise, const Shape& input,
                                const Shape& filter) {
  if (input.rank() != 4) {
    return errors::InvalidArgument("input must be 4-dimensional: ", input.DebugString());
  }
  if (filter.rank() != 4) {
    return errors::InvalidArgument("filter must be 4-dimensional: ", filter.DebugString());
  }
  if (attrs.stride(3) != 1) {
    return errors::InvalidArgument("strides over channels are not supported");
  }
  Geometry g;
  g.batch = input.dim(0);
  g.channels = input.dim(3);
  if (depthwise) {
    if (filter.dim(2) != g.channels) {
      return errors::InvalidArgument("input and filter must have the same depth: ", g.channels,
                                     " vs ", filter.dim(2));
    }
    g.groups = g.channels;
    g.out_channels = g.channels * filter.dim(3);
    MR_ASSIGN_OR_RETURN(g.rows, attrs.Axis(1, input.dim(1), filter.dim(0)));
    MR_ASSIGN_OR_RETURN(g.cols, attrs.Axis(2, input.dim(2), filter.dim(1)));
    return g;
  }
  g.out_channels = filter.dim(3);
  if (filter.dim(2) <= 0 || g.channels % filter.dim(2) != 0) {
    return errors::InvalidArgument("input depth must be evenly divisible by filter depth: ",
                                   g.channels, " vs ", filter.dim(2));
  }
  g.groups = g.channels / filter.dim(2);
  if (g.groups < 1 || g.out_channels % g.groups != 0) {
    return errors::InvalidArgument("output depth ", g.out_channels,
                                   " must be evenly divisible by the number of groups ", g.groups);
  }
  MR_ASSIGN_OR_RETURN(g.rows, attrs.Axis(1, input.dim(1), filter.dim(0)));
  MR_ASSIGN_OR_RETURN(g.cols, attrs.Axis(2, input.dim(2), filter.dim(1)));
  return g;
}

// Calls f(patch offset, image offset or -1) for every tap of the output rows [begin, end).
template <typename F>
void ForEachTap(const Geometry& g, int64_t group, int64_t begin, int64_t end, F&& f) {
  const int64_t depth = g.group_channels();
  int64_t at = 0;
  for (int64_t oy = begin; oy < end; ++oy) {
    for (int64_t ox = 0; ox < g.cols.output; ++ox) {
      for (int64_t ky = 0; ky < g.rows.size; ++ky) {
        const int64_t y = oy * g.rows.stride - g.rows.pad_before + ky * g.rows.dilation;
        for (int64_t kx = 0; kx < g.cols.size; ++kx, at += depth) {
          const int64_t x = ox * g.cols.stride - g.cols.pad_before + kx * g.cols.dilation;
          const bool inside = y >= 0 && y < g.rows.input && x >= 0 && x < g.cols.input;
          f(at, inside ? (y * g.cols.input + x) * g.channels + group * depth : -1);
        }
      }
    }
  }
}

template <typename C>
void GatherPatches(const Geometry& g, int64_t group, int64_t begin, int64_t end, const C* image,
                   C* patches) {
  const int64_t depth = g.group_channels();
  ForEachTap(g, group, begin, end, [&](int64_t at, int64_t from) {
    if (from < 0) {
      std::fill_n(patches + at, depth, C(0));
    } else {
      std::copy_n(image + from, depth, patches + at);
    }
  });
}

template <typename C>
C Sum(C a, C b) {
  return a + b;
}
int32_t Sum(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

template <typename C>
void ScatterPatches(const Geometry& g, int64_t group, int64_t begin, int64_t end, const C* patches,
                    C* image) {
  const int64_t depth = g.group_channels();
  ForEachTap(g, group, begin, end, [&](int64_t at, int64_t to) {
    if (to < 0) return;
    for (int64_t i = 0; i < depth; ++i) image[to + i] = Sum(image[to + i], patches[at + i]);
  });
}

void RunHere(int64_t n, double, absl::FunctionRef<void(int64_t, int64_t)> body) { body(0, n); }

// A product of integers, which wraps around as TensorFlow's does.
void Multiply(int64_t m, int64_t n, int64_t k, MatrixView<int32_t> a, MatrixView<int32_t> b,
              int32_t* c, int64_t c_stride, bool accumulate, ParallelRunner parallel) {
  parallel(m, 0.5 * static_cast<double>(n * k), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int32_t* row = c + i * c_stride;
      if (!accumulate) std::fill_n(row, n, 0);
      for (int64_t p = 0; p < k; ++p) {
        const auto factor = static_cast<uint32_t>(a.data[i * a.row_stride + p * a.col_stride]);
        const int32_t* other = b.data + p * b.row_stride;
        for (int64_t j = 0; j < n; ++j) {
          const auto term = factor * static_cast<uint32_t>(other[j * b.col_stride]);
          row[j] = static_cast<int32_t>(static_cast<uint32_t>(row[j]) + term);
        }
      }
    }
  });
}

template <typename C>
void Multiply(int64_t m, int64_t n, int64_t k, MatrixView<C> a, MatrixView<C> b, C* c,
              int64_t c_stride, bool accumulate, ParallelRunner parallel) {
  Gemm<C>(m, n, k, a, b, c, c_stride, accumulate, parallel);
}

// Output rows per patch matrix: about a thousand positions.
int64_t RowsPerBlock(const Geometry& g) {
  return std::clamp<int64_t>(1024 / std::max<int64_t>(1, g.cols.output), 1,
                             std::max<int64_t>(1, g.rows.output));
}

template <typename C>
Status Forward(KernelContext& ctx, const Geometry& g, const C* input, const C* filter, C* out) {
  const int64_t step = RowsPerBlock(g), blocks = (g.rows.output + step - 1) / step;
  const int64_t taps = g.taps();
  Status failed;
  const double cost = static_cast<double>(step * g.cols.output * taps * g.group_outputs()) / 20;
  Mutex mu;
  ctx.ParallelFor(g.batch * blocks, cost, [&](int64_t begin, int64_t end) {
    StatusOr<Tensor> patches =
        ctx.AllocateTemp(DataTypeOf<C>(), Shape({step * g.cols.output, taps}));
    if (!patches.ok()) {
      MutexLock lock(&mu);
      failed = patches.status();
      return;
    }
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t n = unit / blocks, first = unit % blocks * step;
      const int64_t last = std::min(g.rows.output, first + step);
      const int64_t positions = (last - first) * g.cols.output;
      for (int64_t group = 0; group < g.groups; ++group) {
        GatherPatches(g, group, first, last, input + n * g.image(), patches->data<C>());
        Multiply(positions, g.group_outputs(), taps, MatrixView<C>{patches->data<C>(), taps, 1},
                 MatrixView<C>{filter + group * g.group_outputs(), g.out_channels, 1},
                 out + n * g.out_image() + first * g.cols.output * g.out_channels +
                     group * g.group_outputs(),
                 g.out_channels, false, RunHere);
      }
    }
  });
  return failed;
}

template <typename C>
Status BackwardInput(KernelContext& ctx, const Geometry& g, const C* filter, const C* gradient,
                     C* out) {
  std::fill_n(out, g.batch * g.image(), C(0));
  const int64_t taps = g.taps(), step = RowsPerBlock(g);
  if (g.batch * g.out_image() == 0) return OkStatus();
  Status failed;
  Mutex mu;
  const double cost = static_cast<double>(g.out_image() * taps) / 20;
  // One image at a time: patches overlap.
  ctx.ParallelFor(g.batch, cost, [&](int64_t begin, int64_t end) {
    StatusOr<Tensor> patches =
        ctx.AllocateTemp(DataTypeOf<C>(), Shape({step * g.cols.output, taps}));
    if (!patches.ok()) {
      MutexLock lock(&mu);
      failed = patches.status();
      return;
    }
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t first = 0; first < g.rows.output; first += step) {
        const int64_t last = std::min(g.rows.output, first + step);
        for (int64_t group = 0; group < g.groups; ++group) {
          Multiply(
              (last - first) * g.cols.output, taps, g.group_outputs(),
              MatrixView<C>{gradient + n * g.out_image() + first * g.cols.output * g.out_channels +
                                group * g.group_outputs(),
                            g.out_channels, 1},
              MatrixView<C>{filter + group * g.group_outputs(), 1, g.out_channels},
              patches->data<C>(), taps, false, RunHere);
          ScatterPatches(g, group, first, last, patches->data<C>(), out + n * g.image());
        }
      }
    }
  });
  return failed;
}

template <typename C>
Status BackwardFilter(KernelContext& ctx, const Geometry& g, const C* input, const C* gradient,
                      C* out) {
  const int64_t taps = g.taps(), step = RowsPerBlock(g);
  std::fill_n(out, taps * g.out_channels, C(0));
  if (g.batch * g.out_image() == 0) return OkStatus();
  MR_ASSIGN_OR_RETURN(Tensor patches,
                      ctx.AllocateTemp(DataTypeOf<C>(), Shape({step * g.cols.output, taps})));
  // Blocks are added one after the other, whatever the number of threads; within a block the
  // product is shared between them.
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t first = 0; first < g.rows.output; first += step) {
      const int64_t last = std::min(g.rows.output, first + step);
      for (int64_t group = 0; group < g.groups; ++group) {
        GatherPatches(g, group, first, last, input + n * g.image(), patches.data<C>());
        Multiply(
            taps, g.group_outputs(), (last - first) * g.cols.output,
            MatrixView<C>{patches.data<C>(), 1, taps},
            MatrixView<C>{gradient + n * g.out_image() + first * g.cols.output * g.out_channels +
                              group * g.group_outputs(),
                          g.out_channels, 1},
            out + group * g.group_outputs(), g.out_channels, true,
            [&ctx](int64_t count, double cost, absl::FunctionRef<void(int64_t, int64_t)> f) {
              ctx.ParallelFor(count, cost, f);
            });
      }
    }
  }
  return OkStatus();
}

// --- By oneDNN -------------------------------------------------------------------------------

// Images per execution. One allocates a little within oneDNN and takes a microsecond of
// overhead: no more of them than threads may want, and enough work in each. Images do not see
// each other, so that the result does not depend on it.
int64_t ImagesPerCall(const Geometry& g, int64_t threads) {
  constexpr int64_t kCallsPerThread = 2, kMostCalls = 16;
  const int64_t calls = std::min(kMostCalls, threads > 1 ? kCallsPerThread * threads : 1);
  const double flops = 2.0 * static_cast<double>(g.out_image()) * static_cast<double>(g.taps());
  const auto enough = static_cast<int64_t>(std::min(16.0, 4e6 / std::max(flops, 1.0)));
  return std::min(g.batch, std::max({(g.batch + calls - 1) / calls, enough, int64_t{1}}));
}

// A pass compiled for all parts of a batch: `whole` for most, `rest` for a smaller last one.
struct CompiledParts {
  int64_t size = 0, count = 0;  // images per part; parts
  std::shared_ptr<const OneDnnConv> whole, rest;

  const OneDnnConv& part(int64_t i) const { return i + 1 == count && rest ? *rest : *whole; }
  int64_t scratch_size() const {
    return std::max(whole->scratch_size(), rest ? rest->scratch_size() : 0);
  }
};

// `count` is 0 where oneDNN is not the better choice.
CompiledParts Compile(const OneDnnConvCache& cache, const Geometry& g, int64_t size) {
  CompiledParts parts;
  Geometry part = g;
  part.batch = size;
  parts.size = size;
  parts.whole = cache.Get(part);
  if (!parts.whole) return parts;
  part.batch = g.batch % size;
  if (part.batch != 0) {
    parts.rest = cache.Get(part);
    if (!parts.rest || !parts.rest->PacksLike(*parts.whole)) return parts;
  }
  parts.count = (g.batch + size - 1) / size;
  return parts;
}

// Runs body(part, scratch) for all parts, on several threads.
Status ForEachPart(KernelContext& ctx, const Geometry& g, const CompiledParts& parts,
                   absl::FunctionRef<Status(int64_t part, float* scratch)> body) {
  Status failed;
  Mutex mu;
  const double flops = 2.0 * static_cast<double>(parts.size * g.out_image() * g.taps());
  ctx.ParallelFor(parts.count, flops / 50, [&](int64_t begin, int64_t end) {
    StatusOr<Tensor> scratch = ctx.AllocateTemp(kFloat, Shape({parts.scratch_size()}));
    Status status = scratch.status();
    for (int64_t i = begin; status.ok() && i < end; ++i) {
      status = body(i, scratch->data<float>());
    }
    if (status.ok()) return;
    MutexLock lock(&mu);
    failed = std::move(status);
  });
  return failed;
}

// Told of outputs that are done: the first image and how many, as floats.
using PartDone = absl::FunctionRef<void(float* outputs, int64_t images)>;

// The images of one part, whose outputs are independent of other parts.
Status RunParts(KernelContext& ctx, const Geometry& g, const CompiledParts& parts, float* images,
                const float* filter, float* outputs, const PartDone* part_done) {
  MR_ASSIGN_OR_RETURN(Tensor packed,
                      ctx.AllocateTemp(kFloat, Shape({parts.whole->packed_filter_size()})));
  MR_RETURN_IF_ERROR(parts.whole->PackFilter(filter, packed.data<float>()));
  return ForEachPart(ctx, g, parts, [&](int64_t i, float* scratch) {
    const int64_t first = i * parts.size;
    float* const made = outputs + first * g.out_image();
    MR_RETURN_IF_ERROR(
        parts.part(i).Execute(images + first * g.image(), packed.data<float>(), made, scratch));
    if (part_done != nullptr) (*part_done)(made, std::min(parts.size, g.batch - first));
    return OkStatus();
  });
}

// One sum per part, added up in order: the result does not depend on the threads.
Status SumParts(KernelContext& ctx, const Geometry& g, const CompiledParts& parts, float* images,
                float* filter, float* outputs) {
  const int64_t n = parts.whole->packed_filter_size();
  MR_ASSIGN_OR_RETURN(Tensor sums, ctx.AllocateTemp(kFloat, Shape({parts.count, n})));
  float* sum = sums.data<float>();
  MR_RETURN_IF_ERROR(ForEachPart(ctx, g, parts, [&](int64_t i, float* scratch) {
    const int64_t first = i * parts.size;
    return parts.part(i).Execute(images + first * g.image(), sum + i * n,
                                 outputs + first * g.out_image(), scratch);
  }));
  ctx.ParallelFor(n, 0.2 * static_cast<double>(parts.count), [&](int64_t begin, int64_t end) {
    for (int64_t i = 1; i < parts.count; ++i) {
      const float* part = sum + i * n;
      for (int64_t j = begin; j < end; ++j) sum[j] += part[j];
    }
  });
  return parts.whole->UnpackFilter(sum, filter);
}

// False if oneDNN is not the better choice. One of the three operands is made from the others.
StatusOr<bool> RunCompiled(ConvPass pass, const OneDnnConvCache& cache, KernelContext& ctx,
                           const Geometry& g, const float* images, const float* filter,
                           const float* outputs, const PartDone* part_done) {
  if (g.batch == 0 || g.out_image() == 0 || g.image() == 0) return false;
  // The compiled code works on 8 or 16 channels of the images' gradient.
  if (pass == ConvPass::kInput && g.groups == 1 && g.channels < 8) return false;
  constexpr int64_t kSums = 8;
  const ThreadPool* const pool = ctx.intra_op_pool();
  const int64_t threads = pool == nullptr ? 1 : pool->num_threads() + 1;
  const int64_t size =
      pass == ConvPass::kFilter ? (g.batch + kSums - 1) / kSums : ImagesPerCall(g, threads);
  const CompiledParts parts = Compile(cache, g, size);
  if (parts.count == 0) return false;
  float* const image_data = const_cast<float*>(images);
  float* const output_data = const_cast<float*>(outputs);
  if (pass == ConvPass::kFilter) {
    MR_RETURN_IF_ERROR(
        SumParts(ctx, g, parts, image_data, const_cast<float*>(filter), output_data));
  } else {
    MR_RETURN_IF_ERROR(RunParts(ctx, g, parts, image_data, filter, output_data, part_done));
  }
  return true;
}

// --- Kernels ---------------------------------------------------------------------------------

// What tensors of a type are computed in: 16-bit floats go through float.
DataType ComputedIn(DataType type) { return type == kHalf || type == kBfloat16 ? kFloat : type; }

// A tensor in the type that is computed in: itself, or a float copy of 16-bit floats.
StatusOr<Tensor> Widened(KernelContext& ctx, const Tensor& tensor) {
  if (tensor.dtype() == ComputedIn(tensor.dtype())) return tensor;
  MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(kFloat, tensor.shape()));
  DispatchType(TypeList<Half, BFloat16>(), tensor.dtype(), [&]<typename T>() {
    const T* in = tensor.data<T>();
    float* out = wide.data<float>();
    for (int64_t i = 0; i < tensor.num_elements(); ++i) out[i] = static_cast<float>(in[i]);
  });
  return wide;
}

// Elements `begin` to `end` of floats, as 16-bit floats of the type of `to`.
void Narrow(const Tensor& from, int64_t begin, int64_t end, Tensor* to) {
  DispatchType(TypeList<Half, BFloat16>(), to->dtype(), [&]<typename T>() {
    const float* const in = from.data<float>();
    T* const out = to->data<T>();
    for (int64_t i = begin; i < end; ++i) out[i] = T(in[i]);
  });
}

// Input `i` holds the sizes of a shape.
StatusOr<Shape> SizesInput(KernelContext& ctx, int i) {
  const Tensor& sizes = ctx.input(i);
  if (sizes.rank() != 1) {
    return errors::InvalidArgument("input_sizes and filter_sizes must be 1-dimensional, got ",
                                   sizes.shape().DebugString());
  }
  const auto flat = sizes.flat<int32_t>();
  const Dims dims(flat.begin(), flat.end());
  return MakeShape({dims.data(), dims.size()});
}

// The operands as tensors, of which the pass makes one.
struct Operands {
  Tensor images, filter, outputs;

  Tensor& made(ConvPass pass) {
    return pass == ConvPass::kForward ? outputs : pass == ConvPass::kInput ? images : filter;
  }
};

template <typename C>
Status RunProducts(ConvPass pass, KernelContext& ctx, const Geometry& g, Operands& o) {
  switch (pass) {
    case ConvPass::kForward:
      return Forward<C>(ctx, g, o.images.data<C>(), o.filter.data<C>(), o.outputs.data<C>());
    case ConvPass::kInput:
      return BackwardInput<C>(ctx, g, o.filter.data<C>(), o.outputs.data<C>(), o.images.data<C>());
    case ConvPass::kFilter:
      return BackwardFilter<C>(ctx, g, o.images.data<C>(), o.outputs.data<C>(), o.filter.data<C>());
  }
  return OkStatus();
}

class ConvKernel : public Kernel {
 public:
  ConvKernel(KernelConstruction& c, ConvPass pass)
      : Kernel(c),
        attrs_(c),
        pass_(pass),
        depthwise_(c.def().name().starts_with("DepthwiseConv2d")),
        cache_(pass) {}

  Status Compute(KernelContext& ctx) override {
    Geometry g;
    MR_ASSIGN_OR_RETURN(Tensor * out, Prepare(ctx, &g));
    if (out->num_elements() == 0) return OkStatus();  // the other axes may be of any size
    return Run(ctx, g, out);
  }

 protected:
  // The geometry, and the output's memory.
  StatusOr<Tensor*> Prepare(KernelContext& ctx, Geometry* geometry) const {
    Shape image_shape = ctx.input(0).shape(), filter_shape = ctx.input(1).shape();
    if (pass_ == ConvPass::kInput) {
      MR_ASSIGN_OR_RETURN(image_shape, SizesInput(ctx, 0));
    } else if (pass_ == ConvPass::kFilter) {
      MR_ASSIGN_OR_RETURN(filter_shape, SizesInput(ctx, 1));
    }
    const bool first = attrs_.channels_first();
    if (first && image_shape.rank() == 4) image_shape = WithChannelsLast(image_shape);
    MR_ASSIGN_OR_RETURN(*geometry, MakeGeometry(attrs_, depthwise_, image_shape, filter_shape));
    const Geometry& g = *geometry;
    const Shape output_shape = first ? WithChannelsFirst(g.OutputShape()) : g.OutputShape();
    if (pass_ != ConvPass::kForward && !(ctx.input(2).shape() == output_shape)) {
      return errors::InvalidArgument("out_backprop must have the shape of the output ",
                                     output_shape.DebugString(), ", got ",
                                     ctx.input(2).shape().DebugString());
    }
    Shape made = output_shape;
    if (pass_ == ConvPass::kFilter) made = filter_shape;
    if (pass_ == ConvPass::kInput) made = first ? WithChannelsFirst(image_shape) : image_shape;
    return ctx.AllocateOutput(0, made);
  }

  const OneDnnConvCache& cache() const { return cache_; }

 private:
  // The operands, with channels last and in the type that is computed in.
  Status Run(KernelContext& ctx, const Geometry& g, Tensor* out) const {
    const bool moves = attrs_.channels_first();
    const bool moves_out = moves && pass_ != ConvPass::kFilter;
    Operands o;
    if (pass_ != ConvPass::kInput) {
      MR_ASSIGN_OR_RETURN(o.images, Operand(ctx, ctx.input(0), moves));
    }
    if (pass_ != ConvPass::kFilter) {
      MR_ASSIGN_OR_RETURN(o.filter, Operand(ctx, ctx.input(1), false));
    }
    if (pass_ != ConvPass::kForward) {
      MR_ASSIGN_OR_RETURN(o.outputs, Operand(ctx, ctx.input(2), moves));
    }
    const DataType type = out->dtype(), computed = ComputedIn(type);
    Tensor& result = o.made(pass_);
    if (type == computed && !moves_out) {
      result = *out;
    } else {
      const Shape shape = moves_out ? WithChannelsLast(out->shape()) : out->shape();
      MR_ASSIGN_OR_RETURN(result, ctx.AllocateTemp(computed, shape));
    }
    MR_RETURN_IF_ERROR(RunPass(ctx, g, o));
    if (type == computed) return moves_out ? CopyChannelsFirst(ctx, result, out) : OkStatus();
    Tensor narrow = *out;
    if (moves_out) {
      MR_ASSIGN_OR_RETURN(narrow, ctx.AllocateTemp(type, result.shape()));
    }
    Narrow(result, 0, result.num_elements(), &narrow);
    return moves_out ? CopyChannelsFirst(ctx, narrow, out) : OkStatus();
  }

  static StatusOr<Tensor> Operand(KernelContext& ctx, const Tensor& tensor, bool moves) {
    if (!moves) return Widened(ctx, tensor);
    MR_ASSIGN_OR_RETURN(const Tensor moved, CopyChannelsLast(ctx, tensor));
    return Widened(ctx, moved);
  }

  Status RunPass(KernelContext& ctx, const Geometry& g, Operands& o) const {
    if (o.made(pass_).dtype() == kDouble) return RunProducts<double>(pass_, ctx, g, o);
    if (o.made(pass_).dtype() == kInt32) return RunProducts<int32_t>(pass_, ctx, g, o);
    MR_ASSIGN_OR_RETURN(const bool done,
                        RunCompiled(pass_, cache_, ctx, g, o.images.data<float>(),
                                    o.filter.data<float>(), o.outputs.data<float>(), nullptr));
    return done ? OkStatus() : RunProducts<float>(pass_, ctx, g, o);
  }

  const WindowAttrs attrs_;
  const ConvPass pass_;
  const bool depthwise_;
  const OneDnnConvCache cache_;
};

// With a bias, and perhaps an activation (graph/rewrite/fuse_products.cc); channels last. 16-bit
// floats are rounded where the nodes rounded them: after the product, the bias and the activation.
class FusedConvKernel : public ConvKernel {
 public:
  explicit FusedConvKernel(KernelConstruction& c)
      : ConvKernel(c, ConvPass::kForward), epilogue_(c) {}

  Status Compute(KernelContext& ctx) override {
    Geometry g;
    StatusOr<Tensor*> prepared = Prepare(ctx, &g);
    if (!prepared.ok()) return epilogue_.OfProduct(std::move(prepared).status());
    Tensor* const out = *prepared;
    MR_RETURN_IF_ERROR(epilogue_.Check(ctx.input(2), g.out_channels));
    if (out->num_elements() == 0) return OkStatus();
    if (out->dtype() != kDouble) return RunFloats(ctx, g, out);
    MR_RETURN_IF_ERROR(Forward<double>(ctx, g, ctx.input(0).data<double>(),
                                       ctx.input(1).data<double>(), out->data<double>()));
    FinishAll(ctx, g, *out, out);
    return OkStatus();
  }

 private:
  Status RunFloats(KernelContext& ctx, const Geometry& g, Tensor* out) const {
    MR_ASSIGN_OR_RETURN(const Tensor wide_images, Widened(ctx, ctx.input(0)));
    MR_ASSIGN_OR_RETURN(const Tensor wide_filter, Widened(ctx, ctx.input(1)));
    Tensor product = *out;
    if (out->dtype() != kFloat) {
      MR_ASSIGN_OR_RETURN(product, ctx.AllocateTemp(kFloat, out->shape()));
    }
    const float* const images = wide_images.data<float>();
    const float* const filter = wide_filter.data<float>();
    float* const outputs = product.data<float>();
    const auto finish = [&](float* part, int64_t count) {
      const int64_t pixels = g.rows.output * g.cols.output;
      const int64_t first = (part - outputs) / g.out_channels;
      Finish(ctx, g, product, first, first + count * pixels, out);
    };
    const PartDone part_done = finish;
    MR_ASSIGN_OR_RETURN(const bool done, RunCompiled(ConvPass::kForward, cache(), ctx, g, images,
                                                     filter, outputs, &part_done));
    if (done) return OkStatus();
    MR_RETURN_IF_ERROR(Forward<float>(ctx, g, images, filter, outputs));
    FinishAll(ctx, g, product, out);
    return OkStatus();
  }

  void FinishAll(KernelContext& ctx, const Geometry& g, const Tensor& product, Tensor* out) const {
    ctx.ParallelFor(out->num_elements() / g.out_channels, 0.5 * static_cast<double>(g.out_channels),
                    [&](int64_t begin, int64_t end) { Finish(ctx, g, product, begin, end, out); });
  }
  // Pixels `begin` to `end`; `product` is the output, or floats that become it.
  void Finish(KernelContext& ctx, const Geometry& g, const Tensor& product, int64_t begin,
              int64_t end, Tensor* out) const {
    const int64_t row = g.out_channels;
    const auto size = static_cast<int64_t>(DataTypeSize(out->dtype()));
    if (out->dtype() != product.dtype()) Narrow(product, begin * row, end * row, out);
    epilogue_.Apply(static_cast<char*>(out->raw_data()) + begin * row * size, end - begin, row, row,
                    ctx.input(2).raw_data());
  }

  const Epilogue epilogue_;
};

template <ConvPass kPass>
std::unique_ptr<Kernel> MakeConv(KernelConstruction& c) {
  return std::make_unique<ConvKernel>(c, kPass);
}

}  // namespace

void RegisterConvKernels(KernelRegistry& registry) {
  for (const std::string op : {"Conv2D", "DepthwiseConv2dNative"}) {
    const auto floats = DataTypesOf(FloatTypes());
    registry.Register(KernelDef(op).Types("T", floats), MakeConv<ConvPass::kForward>);
    registry.Register(KernelDef(op + "BackpropInput").Types("T", floats),
                      MakeConv<ConvPass::kInput>);
    registry.Register(KernelDef(op + "BackpropFilter").Types("T", floats),
                      MakeConv<ConvPass::kFilter>);
  }
  registry.Register(KernelDef("_FusedConv2D").Types("T", DataTypesOf(FloatTypes())),
                    MakeKernel<FusedConvKernel>);
  registry.Register(KernelDef("Conv2D").Type<int32_t>("T"), MakeConv<ConvPass::kForward>);
  registry.Register(KernelDef("Conv2DBackpropInput").Type<int32_t>("T"),
                    MakeConv<ConvPass::kInput>);
}

}  // namespace millrace
