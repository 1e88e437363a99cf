// SPDX-License-Identifier: Apache-2.0
// Conv3D and its gradients: matrix products over patches, as in conv.cc. Volumes with their
// channels first are copied to have them last, 16-bit floats are computed in float.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/gemm.h"
#include "kernels/common/kernel_util.h"
#include "kernels/nn/volume.h"

namespace millrace {
namespace {

using Geometry = VolumeGeometry;

enum class ConvPass { kForward, kInput, kFilter };

// Calls f(tap, place) for all taps of a position's window, with -1 for what lies in the padding.
template <typename F>
void ForEachTap(const Geometry& g, int64_t position, F&& f) {
  const std::array<int64_t, 3> begin = g.Begin(position);
  const auto& [planes, rows, columns] = g.axes;
  int64_t tap = 0;
  for (int64_t kz = 0; kz < planes.size; ++kz) {
    const int64_t z = begin[0] + kz * planes.dilation;
    for (int64_t ky = 0; ky < rows.size; ++ky) {
      const int64_t y = begin[1] + ky * rows.dilation;
      const bool row_inside = z >= 0 && z < planes.input && y >= 0 && y < rows.input;
      for (int64_t kx = 0; kx < columns.size; ++kx) {
        const int64_t x = begin[2] + kx * columns.dilation;
        const bool inside = row_inside && x >= 0 && x < columns.input;
        f(tap++, inside ? (z * rows.input + y) * columns.input + x : -1);
      }
    }
  }
}

void RunHere(int64_t n, double, absl::FunctionRef<void(int64_t, int64_t)> body) { body(0, n); }

// The three passes on operands with channels last, in parts that stay in cache. C: float, double.
template <typename C>
class VolumeConv {
 public:
  VolumeConv(KernelContext& ctx, const Geometry& g)
      : ctx_(ctx),
        g_(g),
        row_(g.taps() * g.channels),
        step_(std::clamp<int64_t>((int64_t{1} << 18) / std::max<int64_t>(1, row_), 1, 1024)),
        parts_((g.positions() + step_ - 1) / step_) {}

  Status Forward(const C* x, const C* filter, C* y) const {
    return ForEachUnit(g_.batch * parts_, [&](int64_t unit, C* patches) {
      const int64_t n = unit / parts_, first = unit % parts_ * step_, count = Count(first);
      Gather(x + n * g_.volume(), first, count, patches);
      Gemm<C>(count, g_.out_channels, row_, {patches, row_, 1}, {filter, g_.out_channels, 1},
              y + n * g_.out_volume() + first * g_.out_channels, g_.out_channels, false, RunHere);
    });
  }

  // One volume at a time: patches overlap.
  Status Input(const C* filter, const C* dy, C* dx) const {
    return ForEachUnit(g_.batch, [&](int64_t n, C* patches) {
      C* const volume = dx + n * g_.volume();
      std::fill_n(volume, g_.volume(), C(0));
      for (int64_t first = 0; first < g_.positions(); first += step_) {
        const int64_t count = Count(first);
        Gemm<C>(count, row_, g_.out_channels,
                {dy + n * g_.out_volume() + first * g_.out_channels, g_.out_channels, 1},
                {filter, 1, g_.out_channels}, patches, row_, false, RunHere);
        Scatter(patches, first, count, volume);
      }
    });
  }

  // Parts are added one after the other, whatever the number of threads.
  Status Filter(const C* x, const C* dy, C* filter) const {
    std::fill_n(filter, row_ * g_.out_channels, C(0));
    MR_ASSIGN_OR_RETURN(Tensor patches, ctx_.AllocateTemp(DataTypeOf<C>(), Shape({step_, row_})));
    const auto parallel = [this](int64_t n, double cost,
                                 absl::FunctionRef<void(int64_t, int64_t)> body) {
      ctx_.ParallelFor(n, cost, body);
    };
    for (int64_t unit = 0; unit < g_.batch * parts_; ++unit) {
      const int64_t n = unit / parts_, first = unit % parts_ * step_, count = Count(first);
      C* const rows = patches.data<C>();
      Gather(x + n * g_.volume(), first, count, rows);
      Gemm<C>(row_, g_.out_channels, count, {rows, 1, row_},
              {dy + n * g_.out_volume() + first * g_.out_channels, g_.out_channels, 1}, filter,
              g_.out_channels, true, parallel);
    }
    return OkStatus();
  }

 private:
  int64_t Count(int64_t first) const { return std::min(step_, g_.positions() - first); }

  // body(unit, room for the patches of a part), on several threads.
  template <typename F>
  Status ForEachUnit(int64_t units, F&& body) const {
    Status failed;
    Mutex mu;
    const double cost = static_cast<double>(step_) * static_cast<double>(row_) *
                        static_cast<double>(g_.out_channels) / 20;
    ctx_.ParallelFor(units, cost, [&](int64_t begin, int64_t end) {
      StatusOr<Tensor> patches = ctx_.AllocateTemp(DataTypeOf<C>(), Shape({step_, row_}));
      if (!patches.ok()) {
        MutexLock lock(&mu);
        failed = patches.status();
        return;
      }
      for (int64_t i = begin; i < end; ++i) body(i, patches->template data<C>());
    });
    return failed;
  }

  void Gather(const C* volume, int64_t first, int64_t count, C* patches) const {
    for (int64_t i = 0; i < count; ++i) {
      ForEachTap(g_, first + i, [&](int64_t tap, int64_t place) {
        C* const to = patches + i * row_ + tap * g_.channels;
        if (place < 0) {
          std::fill_n(to, g_.channels, C(0));
        } else {
          std::copy_n(volume + place * g_.channels, g_.channels, to);
        }
      });
    }
  }
  void Scatter(const C* patches, int64_t first, int64_t count, C* volume) const {
    for (int64_t i = 0; i < count; ++i) {
      ForEachTap(g_, first + i, [&](int64_t tap, int64_t place) {
        if (place < 0) return;
        const C* const from = patches + i * row_ + tap * g_.channels;
        C* const to = volume + place * g_.channels;
        for (int64_t c = 0; c < g_.channels; ++c) to[c] += from[c];
      });
    }
  }

  KernelContext& ctx_;
  const Geometry& g_;
  const int64_t row_, step_, parts_;  // elements of a patch; positions in a part; parts of a volume
};

// Elements of one type as those of another; 16-bit floats are computed in float.
template <typename From, typename To>
void ConvertAll(const Tensor& from, Tensor* to) {
  const From* const in = from.data<From>();
  To* const out = to->data<To>();
  for (int64_t i = 0; i < from.num_elements(); ++i) out[i] = static_cast<To>(in[i]);
}
StatusOr<Tensor> Widened(KernelContext& ctx, const Tensor& t) {
  if (t.dtype() != kHalf && t.dtype() != kBfloat16) return t;
  MR_ASSIGN_OR_RETURN(Tensor wide, ctx.AllocateTemp(kFloat, t.shape()));
  DispatchType(TypeList<Half, BFloat16>(), t.dtype(),
               [&]<typename T>() { ConvertAll<T, float>(t, &wide); });
  return wide;
}

class VolumeConvKernel : public Kernel {
 public:
  VolumeConvKernel(KernelConstruction& c, ConvPass pass) : Kernel(c), attrs_(c), pass_(pass) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Shape input, ShapeOfInput(ctx, 0, ConvPass::kInput));
    MR_ASSIGN_OR_RETURN(const Shape filter, ShapeOfInput(ctx, 1, ConvPass::kFilter));
    MR_ASSIGN_OR_RETURN(const Geometry g, MakeGeometry(input, filter));
    const Shape output = attrs_.InFormat(
        {g.batch, g.axes[0].output, g.axes[1].output, g.axes[2].output, g.out_channels});
    if (pass_ != ConvPass::kForward && !(ctx.input(2).shape() == output)) {
      return errors::InvalidArgument("out_backprop must have the shape of the output ",
                                     output.DebugString(), ", got ",
                                     ctx.input(2).shape().DebugString());
    }
    const bool forward = pass_ == ConvPass::kForward;
    const Shape& made = forward ? output : pass_ == ConvPass::kInput ? input : filter;
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, made));
    if (out->num_elements() == 0) return OkStatus();  // the other axes may be of any size
    return Run(ctx, g, out);
  }

 private:
  // Of the image or the filter; what the pass makes has its shape as an input's value.
  StatusOr<Shape> ShapeOfInput(KernelContext& ctx, int i, ConvPass made_by) const {
    Shape shape = ctx.input(i).shape();
    if (pass_ == made_by) {
      MR_ASSIGN_OR_RETURN(shape, ShapeFromTensor(ctx.input(i), "input_sizes or filter_sizes"));
    }
    if (shape.rank() == 5) return shape;
    return errors::InvalidArgument(i == 0 ? "input" : "filter", " must be 5-dimensional, got ",
                                   shape.DebugString());
  }

  StatusOr<Geometry> MakeGeometry(const Shape& input, const Shape& filter) const {
    const Shape volume = attrs_.Canonical(input);
    Geometry g{volume.dim(0), volume.dim(4), filter.dim(4), {}};
    if (filter.dim(3) == 0 || g.channels % filter.dim(3) != 0) {
      return errors::InvalidArgument("Input depth must be evenly divisible by filter depth: ",
                                     g.channels, " vs ", filter.dim(3));
    }
    if (g.channels != filter.dim(3)) {
      return errors::InvalidArgument("Number of channels in filter (", filter.dim(3),
                                     ") must match last dimension of input (", g.channels, ")");
    }
    MR_ASSIGN_OR_RETURN(g.axes, attrs_.Axes(volume, {filter.dim(0), filter.dim(1), filter.dim(2)}));
    return g;
  }

  Status Run(KernelContext& ctx, const Geometry& g, Tensor* out) const {
    std::array<Tensor, 3> o;  // volumes, filter, outputs; one of them is made
    const int made = pass_ == ConvPass::kForward ? 2 : pass_ == ConvPass::kInput ? 0 : 1;
    bool empty = false;
    for (int i = 0; i < 3; ++i) {
      if (i == made) continue;
      o[i] = ctx.input(i);
      empty = empty || o[i].num_elements() == 0;
      if (i != 1) {
        MR_ASSIGN_OR_RETURN(o[i], attrs_.Operand(ctx, o[i]));
      }
      MR_ASSIGN_OR_RETURN(o[i], Widened(ctx, o[i]));
    }
    const DataType type = out->dtype(), computed = type == kDouble ? kDouble : kFloat;
    const bool moves = attrs_.channels_first() && made != 1;
    const Shape shape = made == 1 ? out->shape() : attrs_.Canonical(out->shape());
    Tensor narrow = *out;  // of the type of the output, with channels last
    if (moves) {
      MR_ASSIGN_OR_RETURN(narrow, ctx.AllocateTemp(type, shape));
    }
    o[made] = narrow;
    if (type != computed) {
      MR_ASSIGN_OR_RETURN(o[made], ctx.AllocateTemp(computed, shape));
    }
    MR_RETURN_IF_ERROR(computed == kDouble ? RunTyped<double>(ctx, g, o, made, empty)
                                           : RunTyped<float>(ctx, g, o, made, empty));
    DispatchType(TypeList<Half, BFloat16>(), type,
                 [&]<typename T>() { ConvertAll<float, T>(o[made], &narrow); });
    return moves ? attrs_.CopyToFormat(ctx, narrow, out) : OkStatus();
  }

  template <typename C>
  Status RunTyped(KernelContext& ctx, const Geometry& g, std::array<Tensor, 3>& o, int made,
                  bool empty) const {
    C* const data[] = {o[0].data<C>(), o[1].data<C>(), o[2].data<C>()};
    if (empty) {  // a sum of nothing; sizes need not have products here
      std::fill_n(data[made], o[made].num_elements(), C(0));
      return OkStatus();
    }
    const VolumeConv<C> conv(ctx, g);
    if (made == 2) return conv.Forward(data[0], data[1], data[2]);
    return made == 0 ? conv.Input(data[1], data[2], data[0])
                     : conv.Filter(data[0], data[2], data[1]);
  }

  const VolumeAttrs attrs_;
  const ConvPass pass_;
};

template <auto kPass>
std::unique_ptr<Kernel> Make(KernelConstruction& c) {
  return std::make_unique<VolumeConvKernel>(c, kPass);
}

}  // namespace

void RegisterVolumeConvKernels(KernelRegistry& r) {
  const auto floats = DataTypesOf(FloatTypes());
  r.Register(KernelDef("Conv3D").Types("T", floats), Make<ConvPass::kForward>);
  r.Register(KernelDef("Conv3DBackpropInputV2").Types("T", floats), Make<ConvPass::kInput>);
  r.Register(KernelDef("Conv3DBackpropFilterV2").Types("T", floats), Make<ConvPass::kFilter>);
}

}  // namespace millrace
