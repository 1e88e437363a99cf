// SPDX-License-Identifier: Apache-2.0
// Padding with what lies inside, mirrored at the edges, and its gradient. Rows along the innermost
// padded axis are copied whole; only what is around them goes element by element.
#include <algorithm>
#include <string>

#include "base/status_macros.h"
#include "kernels/array/layout_plan.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// Rows of the padded tensor: axes before `axis` say which, `axis` is the innermost that is padded,
// and what comes after it stays together.
class MirroredRows {
 public:
  // Of a tensor of shape `inner`, with `before` in front of each axis, in one of shape `outer`.
  MirroredRows(const Dims& inner, const Dims& before, const Shape& outer, bool reflect)
      : inner_(inner), before_(before), outer_(outer), skip_(reflect ? 1 : 0) {
    axis_ = outer.rank() - 1;
    while (axis_ > 0 && outer.dim(axis_) == inner[axis_]) run_ *= inner[axis_--];
  }

  // Elements that are one position of `axis`.
  int64_t run() const { return run_; }
  // Positions along it, inside and with the padding, and those of the padding in front.
  int64_t inner_size() const { return inner_[axis_]; }
  int64_t outer_size() const { return outer_.dim(axis_); }
  int64_t before() const { return before_[axis_]; }
  int64_t rows() const {
    int64_t rows = 1;
    for (int i = 0; i < axis_; ++i) rows *= outer_.dim(i);
    return rows;
  }
  // Rows of the padded tensor that have one index on the first axis.
  int64_t rows_of_first() const { return axis_ == 0 ? 1 : rows() / outer_.dim(0); }

  // Where inside the row of the padded tensor comes from, in rows.
  int64_t Source(int64_t row) const {
    int64_t source = 0, weight = 1;
    for (int i = axis_ - 1; i >= 0; --i) {
      source += weight * Mirrored(i, row % outer_.dim(i));
      row /= outer_.dim(i);
      weight *= inner_[i];
    }
    return source;
  }
  // Where along the innermost padded axis a position comes from.
  int64_t Position(int64_t at) const { return Mirrored(axis_, at); }

 private:
  int64_t Mirrored(int axis, int64_t at) const {
    int64_t k = at - before_[axis];
    const int64_t n = inner_[axis];
    if (k < 0) k = -k - 1 + skip_;
    return k >= n ? 2 * n - 1 - k - skip_ : k;
  }

  const Dims& inner_;
  const Dims& before_;
  const Shape& outer_;
  const int64_t skip_;
  int axis_ = 0;
  int64_t run_ = 1;
};

class MirrorPadKernel : public Kernel {
 public:
  explicit MirrorPadKernel(KernelConstruction& c)
      : Kernel(c), reflect_(c.attr<std::string>("mode") == "REFLECT") {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &in = ctx.input(0), &paddings = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const MirrorPlan plan,
                        PlanMirrorPad(in.shape(), paddings, reflect_ ? 1 : 0));
    if (in.rank() == 0) {
      ctx.SetOutput(0, in);
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, plan.out));
    if (plan.out.num_elements() == 0) return OkStatus();
    const MirroredRows rows(plan.inner, plan.before, plan.out, reflect_);
    const bool movable = DispatchMovable(in.dtype(), [&]<typename T>() {
      const T* src = static_cast<const T*>(in.raw_data());
      T* dst = static_cast<T*>(out->raw_data());
      const int64_t length = rows.outer_size() * rows.run();
      ctx.ParallelFor(rows.rows(), 0.3 * static_cast<double>(length),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          const int64_t from = rows.Source(i) * rows.inner_size() * rows.run();
                          CopyRow(rows, src + from, dst + i * length);
                        }
                      });
    });
    if (!movable) return errors::Unimplemented("MirrorPad of ", DataTypeName(in.dtype()));
    return OkStatus();
  }

 private:
  template <typename T>
  static void CopyRow(const MirroredRows& rows, const T* src, T* dst) {
    const int64_t run = rows.run(), before = rows.before(), n = rows.inner_size();
    const auto edge = [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const T* from = src + rows.Position(k) * run;
        for (int64_t j = 0; j < run; ++j) dst[k * run + j] = from[j];
      }
    };
    edge(0, before);
    std::copy_n(src, n * run, dst + before * run);
    edge(before + n, rows.outer_size());
  }

  const bool reflect_;
};

// to[i] += from[i], rounded to T each time.
template <typename T>
struct AddTo {
  static MR_ALWAYS_INLINE void Run(const T* from, T* to, int64_t n) {
    using C = ComputeType<T>;
    if constexpr (kIsSmallFloat<T>) return small_floats::Add(to, from, to, n);
    MR_IVDEP
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::is_integral_v<T>) {
        to[i] = static_cast<T>(static_cast<uint64_t>(to[i]) + static_cast<uint64_t>(from[i]));
      } else {
        to[i] = static_cast<T>(static_cast<C>(to[i]) + static_cast<C>(from[i]));
      }
    }
  }
};

// What MirrorPad copied is added up again.
class MirrorPadGradKernel : public Kernel {
 public:
  explicit MirrorPadGradKernel(KernelConstruction& c)
      : Kernel(c), reflect_(c.attr<std::string>("mode") == "REFLECT") {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &grads = ctx.input(0), &paddings = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const MirrorPlan plan,
                        PlanMirrorPadGrad(grads.shape(), paddings, reflect_ ? 1 : 0));
    if (grads.rank() == 0) {
      ctx.SetOutput(0, grads);
      return OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, plan.out));
    if (plan.out.num_elements() == 0) return OkStatus();
    const MirroredRows rows(plan.inner, plan.before, grads.shape(), reflect_);
    // Threads share the first axis where nothing of it is added to something else of it.
    const int64_t first = grads.dim(0), each = rows.rows_of_first();
    const bool apart = first == plan.inner[0] && rows.rows() == first * each;
    const int64_t units = apart ? first : 1, per_unit = apart ? each : rows.rows();
    DispatchType(NumberTypes(), grads.dtype(), [&]<typename T>() {
      const T* src = grads.data<T>();
      T* sum = out->data<T>();
      const int64_t length = rows.outer_size() * rows.run();
      const auto add = LoopFor<AddTo<T>, T>();
      std::fill_n(sum, plan.out.num_elements(), static_cast<T>(ComputeType<T>(0)));
      ctx.ParallelFor(units, 0.5 * static_cast<double>(per_unit * length),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin * per_unit; i < end * per_unit; ++i) {
                          const int64_t to = rows.Source(i) * rows.inner_size() * rows.run();
                          AddRow<T>(rows, src + i * length, sum + to, add);
                        }
                      });
    });
    return OkStatus();
  }

 private:
  template <typename T, typename F>
  static void AddRow(const MirroredRows& rows, const T* src, T* sum, F add) {
    const int64_t run = rows.run(), before = rows.before(), n = rows.inner_size();
    for (int64_t k = 0; k < before; ++k) add(src + k * run, sum + rows.Position(k) * run, run);
    add(src + before * run, sum, n * run);
    for (int64_t k = before + n; k < rows.outer_size(); ++k) {
      add(src + k * run, sum + rows.Position(k) * run, run);
    }
  }

  const bool reflect_;
};

}  // namespace

void RegisterMirrorPadKernels(KernelRegistry& r) {
  RegisterCpu<MirrorPadKernel>(r, "MirrorPad");
  r.Register(KernelDef("MirrorPadGrad").Types("T", DataTypesOf(NumberTypes())),
             MakeKernel<MirrorPadGradKernel>);
}

}  // namespace millrace
