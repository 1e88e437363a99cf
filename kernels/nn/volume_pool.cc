// SPDX-License-Identifier: Apache-2.0
// MaxPool3D, AvgPool3D and their gradients, and the gradient of MaxPoolGrad, for which an image is
// a volume of one plane. Volumes with their channels first are copied to have them last.
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/nn/volume.h"

namespace millrace {
namespace {

using Geometry = VolumeGeometry;

// Calls f(place) for what the window of an output position sees, counted within the volume.
template <typename F>
void ForEachPlace(const Geometry& g, int64_t position, F&& f) {
  std::array<int64_t, 3> begin = g.Begin(position), end;
  for (int i = 0; i < 3; ++i) {
    end[i] = std::min(g.axes[i].input, begin[i] + g.axes[i].size);
    begin[i] = std::max<int64_t>(0, begin[i]);
  }
  for (int64_t z = begin[0]; z < end[0]; ++z) {
    for (int64_t y = begin[1]; y < end[1]; ++y) {
      const int64_t row = (z * g.axes[1].input + y) * g.axes[2].input;
      for (int64_t x = begin[2]; x < end[2]; ++x) f(row + x);
    }
  }
}

enum class PoolPass { kMax, kMaxGrad, kMaxGradGrad, kAvg, kAvgGrad };

// The loops over one volume; x is the pool's input, y its output.
template <typename T>
struct Pool {
  using C = ComputeType<T>;
  const Geometry& g;

  // As in pool.cc: finite.
  static T Lowest() {
    if constexpr (std::is_same_v<T, Half>) {
      return T(-65504.0f);
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      return T(-3.3895313892515355e38f);
    } else {
      return std::numeric_limits<T>::lowest();
    }
  }
  static void Add(T* sum, C more) { *sum = static_cast<T>(static_cast<C>(*sum) + more); }

  void Max(const T* x, T* y) const {
    for (int64_t p = 0; p < g.positions(); ++p, y += g.channels) {
      std::fill_n(y, g.channels, Lowest());
      ForEachPlace(g, p, [&](int64_t place) {
        const T* from = x + place * g.channels;
        for (int64_t c = 0; c < g.channels; ++c) {
          if (y[c] < from[c]) y[c] = from[c];
        }
      });
    }
  }
  // Over volumes, every one of the largest gets the gradient, as in TensorFlow.
  void MaxGrad(const T* x, const T* y, const T* dy, T* dx) const {
    std::fill_n(dx, g.volume(), T());
    for (int64_t p = 0; p < g.positions(); ++p, y += g.channels, dy += g.channels) {
      ForEachPlace(g, p, [&](int64_t place) {
        const int64_t at = place * g.channels;
        for (int64_t c = 0; c < g.channels; ++c) {
          if (x[at + c] == y[c]) Add(&dx[at + c], static_cast<C>(dy[c]));
        }
      });
    }
  }
  // What comes back from the first of the largest.
  void MaxGradGrad(const T* x, const T* y, const T* ddx, T* ddy) const {
    for (int64_t p = 0; p < g.positions(); ++p, y += g.channels, ddy += g.channels) {
      for (int64_t c = 0; c < g.channels; ++c) {
        bool found = false;
        ddy[c] = T();
        ForEachPlace(g, p, [&](int64_t place) {
          const int64_t at = place * g.channels + c;
          if (found || !(x[at] == y[c])) return;
          found = true;
          ddy[c] = ddx[at];
        });
      }
    }
  }
  int64_t Count(int64_t position) const {
    int64_t count = 0;
    ForEachPlace(g, position, [&](int64_t) { ++count; });
    return count;
  }
  // Averages are over what exists: padding does not count.
  void Avg(const T* x, T* y) const {
    for (int64_t p = 0; p < g.positions(); ++p, y += g.channels) {
      const C count = static_cast<C>(Count(p));
      for (int64_t c = 0; c < g.channels; ++c) {
        C sum = C(0);
        ForEachPlace(g, p,
                     [&](int64_t place) { sum += static_cast<C>(x[place * g.channels + c]); });
        y[c] = static_cast<T>(sum / count);
      }
    }
  }
  void AvgGrad(const T* dy, T* dx) const {
    std::fill_n(dx, g.volume(), T());
    for (int64_t p = 0; p < g.positions(); ++p, dy += g.channels) {
      const C count = static_cast<C>(Count(p));
      ForEachPlace(g, p, [&](int64_t place) {
        T* sum = dx + place * g.channels;
        for (int64_t c = 0; c < g.channels; ++c) Add(&sum[c], static_cast<C>(dy[c]) / count);
      });
    }
  }
};

class VolumePoolKernel : public Kernel {
 public:
  VolumePoolKernel(KernelConstruction& c, PoolPass pass)
      : Kernel(c), given_(c), pass_(pass), from_inputs_(c.def().name().ends_with("V2")) {}

  Status Compute(KernelContext& ctx) override {
    VolumeAttrs attrs = given_;
    if (from_inputs_) MR_RETURN_IF_ERROR(attrs.ReadInputs(ctx));
    Shape input = ctx.input(0).shape();
    if (pass_ == PoolPass::kAvgGrad) {
      MR_ASSIGN_OR_RETURN(input, ShapeFromTensor(ctx.input(0), "orig_input_shape"));
    }
    if (input.rank() != attrs.rank()) {
      return errors::InvalidArgument("tensor_in must be ", attrs.rank(), "-dimensional, got ",
                                     input.DebugString());
    }
    const Shape canonical = attrs.Canonical(input);
    const std::vector<int64_t>& k = attrs.ksize();
    Geometry g{canonical.dim(0), canonical.dim(4), canonical.dim(4), {}};
    MR_ASSIGN_OR_RETURN(g.axes, attrs.Axes(canonical, {k[1], k[2], k[3]}));
    const Shape output =
        attrs.InFormat({g.batch, g.axes[0].output, g.axes[1].output, g.axes[2].output, g.channels});
    MR_RETURN_IF_ERROR(CheckShapes(ctx, input, output));
    const bool makes_input = pass_ == PoolPass::kMaxGrad || pass_ == PoolPass::kAvgGrad;
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, makes_input ? input : output));
    if (out->num_elements() == 0) return OkStatus();  // the other axes may be of any size
    return Run(ctx, attrs, g, out);
  }

 private:
  // Of the inputs behind the first.
  Status CheckShapes(KernelContext& ctx, const Shape& input, const Shape& output) const {
    if (pass_ == PoolPass::kMax || pass_ == PoolPass::kAvg) return OkStatus();
    const int last = pass_ == PoolPass::kAvgGrad ? 1 : 2;
    for (int i = 1; i <= last; ++i) {
      const Shape& want = pass_ == PoolPass::kMaxGradGrad && i == 2 ? input : output;
      if (ctx.input(i).shape() == want) continue;
      return errors::InvalidArgument("Expected ", i == last ? "grad" : "orig_output",
                                     " shape to be ", want.DebugString(), ", but got ",
                                     ctx.input(i).shape().DebugString());
    }
    return OkStatus();
  }

  Status Run(KernelContext& ctx, const VolumeAttrs& attrs, const Geometry& g, Tensor* out) const {
    std::array<Tensor, 3> in;
    const int first = pass_ == PoolPass::kAvgGrad ? 1 : 0;
    const int last = pass_ == PoolPass::kMax || pass_ == PoolPass::kAvg ? 0
                     : pass_ == PoolPass::kAvgGrad                      ? 1
                                                                        : 2;
    for (int i = first; i <= last; ++i) {
      MR_ASSIGN_OR_RETURN(in[i], attrs.Operand(ctx, ctx.input(i)));
    }
    Tensor made = *out;
    const Shape shape = attrs.Canonical(out->shape());
    if (attrs.channels_first()) {
      MR_ASSIGN_OR_RETURN(made, ctx.AllocateTemp(out->dtype(), shape));
    }
    const double cost = 0.3 * static_cast<double>(g.out_volume()) * static_cast<double>(g.taps());
    DispatchType(RealTypes(), out->dtype(), [&]<typename T>() {
      ctx.ParallelFor(g.batch, cost, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) RunVolume<T>(g, in, n, &made);
      });
    });
    if (!attrs.channels_first()) return OkStatus();
    return attrs.CopyToFormat(ctx, made, out);
  }

  template <typename T>
  void RunVolume(const Geometry& g, const std::array<Tensor, 3>& in, int64_t n,
                 Tensor* made) const {
    const Pool<T> pool{g};
    const int64_t x = n * g.volume(), y = n * g.out_volume();
    const auto at = [&](int i, int64_t offset) { return in[i].data<T>() + offset; };
    T* const out = made->data<T>();
    switch (pass_) {
      case PoolPass::kMax:
        return pool.Max(at(0, x), out + y);
      case PoolPass::kMaxGrad:
        return pool.MaxGrad(at(0, x), at(1, y), at(2, y), out + x);
      case PoolPass::kMaxGradGrad:
        return pool.MaxGradGrad(at(0, x), at(1, y), at(2, x), out + y);
      case PoolPass::kAvg:
        return pool.Avg(at(0, x), out + y);
      case PoolPass::kAvgGrad:
        return pool.AvgGrad(at(1, y), out + x);
    }
  }

  const VolumeAttrs given_;
  const PoolPass pass_;
  const bool from_inputs_;
};

template <auto kPass>
std::unique_ptr<Kernel> Make(KernelConstruction& c) {
  return std::make_unique<VolumePoolKernel>(c, kPass);
}

}  // namespace

void RegisterVolumePoolKernels(KernelRegistry& r) {
  // Those that TensorFlow has.
  const std::vector<DataType> types = {kFloat, kBfloat16};
  r.Register(KernelDef("MaxPool3D").Types("T", types), Make<PoolPass::kMax>);
  for (const DataType type : types) {
    r.Register(KernelDef("MaxPool3DGrad").Types("T", {type}).Types("TInput", {type}),
               Make<PoolPass::kMaxGrad>);
  }
  r.Register(KernelDef("MaxPool3DGradGrad").Types("T", types), Make<PoolPass::kMaxGradGrad>);
  r.Register(KernelDef("AvgPool3D").Types("T", types), Make<PoolPass::kAvg>);
  r.Register(KernelDef("AvgPool3DGrad").Types("T", types), Make<PoolPass::kAvgGrad>);
  for (const char* op : {"MaxPoolGradGrad", "MaxPoolGradGradV2"}) {
    r.Register(KernelDef(op).Types("T", DataTypesOf(RealTypes())), Make<PoolPass::kMaxGradGrad>);
  }
}

}  // namespace millrace
