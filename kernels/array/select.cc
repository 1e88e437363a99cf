// SPDX-License-Identifier: Apache-2.0
// Choice between two tensors by a third of truth values, and where it is true.
#include <algorithm>
#include <array>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/broadcast.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// out[i] = c[i] ? x[i] : y[i], where a stride of 0 repeats an operand. `out` may be an operand that
// is not repeated.
template <typename T>
struct ChooseLoop {
  static MR_ALWAYS_INLINE void Run(const bool* c, const T* x, int64_t x_stride, const T* y,
                                   int64_t y_stride, T* out, int64_t n) {
    if (x_stride != 0 && y_stride != 0) {
      MR_IVDEP
      for (int64_t i = 0; i < n; ++i) {
        const T a = x[i], b = y[i];  // both: then it is a blend and no branch
        out[i] = c[i] ? a : b;
      }
    } else if (x_stride != 0) {
      const T b = *y;
      MR_IVDEP
      for (int64_t i = 0; i < n; ++i) {
        const T a = x[i];
        out[i] = c[i] ? a : b;
      }
    } else if (y_stride != 0) {
      const T a = *x;
      MR_IVDEP
      for (int64_t i = 0; i < n; ++i) {
        const T b = y[i];
        out[i] = c[i] ? a : b;
      }
    } else {
      const T a = *x, b = *y;
      MR_IVDEP
      for (int64_t i = 0; i < n; ++i) out[i] = c[i] ? a : b;
    }
  }
};

// One condition for n elements.
template <typename T>
void ChooseRun(const bool* c, const T* x, int64_t x_stride, const T* y, int64_t y_stride, T* out,
               int64_t n) {
  const T* from = *c ? x : y;
  if ((*c ? x_stride : y_stride) == 0) {
    std::fill_n(out, n, T(*from));
  } else if (from != out) {
    std::copy_n(from, n, out);
  }
}

// What is chosen from what: the axes of the output, outermost first, with the strides of the
// condition and of both operands, 0 where they are repeated. Neighbouring axes along which all
// three go on alike are one; strides of the last axis are 0 or 1.
struct ChoicePlan {
  struct Axis {
    int64_t size;
    std::array<int64_t, 3> stride;
  };
  Shape out;
  absl::InlinedVector<Axis, 6> axes;  // never empty
};

StatusOr<ChoicePlan> PlanChoice(const Shape& cond, const Shape& x, const Shape& y) {
  MR_ASSIGN_OR_RETURN(const Shape values, BroadcastShapes(x, y));
  ChoicePlan plan;
  MR_ASSIGN_OR_RETURN(plan.out, BroadcastShapes(cond, values));
  const int rank = plan.out.rank();
  const Shape* shapes[] = {&cond, &x, &y};
  Dims strides[3];
  for (int k = 0; k < 3; ++k) strides[k] = RowMajorStrides(shapes[k]->dims());
  for (int i = 0; i < rank; ++i) {
    ChoicePlan::Axis axis{plan.out.dim(i), {}};
    if (axis.size == 1) continue;
    for (int k = 0; k < 3; ++k) {
      const int own = i - (rank - shapes[k]->rank());
      axis.stride[k] = own < 0 || shapes[k]->dim(own) == 1 ? 0 : strides[k][own];
    }
    bool joins = !plan.axes.empty();
    for (int k = 0; joins && k < 3; ++k) {
      joins = plan.axes.back().stride[k] == axis.stride[k] * axis.size;
    }
    if (joins) {
      plan.axes.back().size *= axis.size;
      plan.axes.back().stride = axis.stride;
    } else {
      plan.axes.push_back(axis);
    }
  }
  if (plan.axes.empty()) plan.axes.push_back({plan.out.num_elements(), {}});
  return plan;
}

// Outputs [begin, end) in memory order.
template <typename T>
void ChooseRange(const ChoicePlan& plan, const bool* c, const T* x, const T* y, T* out,
                 int64_t begin, int64_t end) {
  const auto loop = [] {
    if constexpr (std::is_integral_v<T>) return BestVersion<ChooseLoop<T>>();
    return &IsaVersions<ChooseLoop<T>>::Base;
  }();
  const ChoicePlan::Axis& inner = plan.axes.back();
  const auto [c_step, x_step, y_step] = inner.stride;
  const int outer = static_cast<int>(plan.axes.size()) - 1;
  std::array<int64_t, 3> at{};
  absl::InlinedVector<int64_t, 6> index(outer);
  int64_t in_row = begin % inner.size, row = begin / inner.size;
  for (int k = outer - 1; k >= 0; --k) {
    index[k] = row % plan.axes[k].size;
    row /= plan.axes[k].size;
    for (int o = 0; o < 3; ++o) at[o] += index[k] * plan.axes[k].stride[o];
  }
  while (begin < end) {
    const int64_t n = std::min(inner.size - in_row, end - begin);
    const bool* condition = c + at[0] + in_row * c_step;
    const T *then = x + at[1] + in_row * x_step, *other = y + at[2] + in_row * y_step;
    if (c_step == 0) {
      ChooseRun(condition, then, x_step, other, y_step, out + begin, n);
    } else {
      loop(condition, then, x_step, other, y_step, out + begin, n);
    }
    begin += n;
    in_row = 0;
    for (int k = outer - 1; k >= 0; --k) {
      for (int o = 0; o < 3; ++o) at[o] += plan.axes[k].stride[o];
      if (++index[k] < plan.axes[k].size) break;
      for (int o = 0; o < 3; ++o) at[o] -= plan.axes[k].stride[o] * plan.axes[k].size;
      index[k] = 0;
    }
  }
}

// `cond` as the plan has it; inputs 1 and 2 of the context are what is chosen from.
Status Choose(KernelContext& ctx, const ChoicePlan& plan) {
  const DataType dtype = ctx.input(1).dtype();
  const bool* cond = ctx.input(0).data<bool>();
  const void *x = ctx.input(1).raw_data(), *y = ctx.input(2).raw_data();
  // An operand with as many elements as the output is not repeated, so it lines up with it.
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({1, 2}, 0, plan.out));
  void* dst = out->raw_data();
  if (plan.out.num_elements() == 0) return OkStatus();
  const bool movable = DispatchMovable(dtype, [&]<typename T>() {
    ctx.ParallelFor(plan.out.num_elements(), 0.4, [&](int64_t begin, int64_t end) {
      ChooseRange(plan, cond, static_cast<const T*>(x), static_cast<const T*>(y),
                  static_cast<T*>(dst), begin, end);
    });
  });
  if (movable) return OkStatus();
  return errors::Unimplemented("Select of elements of type ", DataTypeName(dtype));
}

// The condition has the operands' shape, or is a scalar, or a vector that chooses rows.
class SelectKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Shape cond = ctx.input(0).shape(), shape = ctx.input(1).shape();
    if (!(shape == ctx.input(2).shape())) {
      return errors::InvalidArgument(
          "'then' and 'else' must have the same size. but received: ", shape.DebugString(), " vs. ",
          ctx.input(2).shape().DebugString());
    }
    if (cond.rank() == 0) {
      ctx.SetOutput(0, ctx.input(ctx.input(0).scalar<bool>() ? 1 : 2));
      return OkStatus();
    }
    const bool same = cond == shape;
    const bool rows = cond.rank() == 1 && shape.rank() >= 1 && cond.dim(0) == shape.dim(0);
    if (!same && !rows) {
      return errors::InvalidArgument(
          "'cond' must be a scalar, of the shape of 'then', or a vector as long as its first "
          "dimension: ",
          cond.DebugString(), " vs. ", shape.DebugString());
    }
    ChoicePlan plan;
    plan.out = shape;
    const int64_t units = cond.num_elements();
    if (same) {
      plan.axes.push_back({units, {1, 1, 1}});
    } else {
      const int64_t run = units == 0 ? 0 : shape.num_elements() / units;
      plan.axes.push_back({units, {1, run, run}});
      plan.axes.push_back({run, {0, 1, 1}});
    }
    return Choose(ctx, plan);
  }
};

// All three are broadcast against each other.
class SelectV2Kernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(
        const ChoicePlan plan,
        PlanChoice(ctx.input(0).shape(), ctx.input(1).shape(), ctx.input(2).shape()));
    return Choose(ctx, plan);
  }
};

// The coordinates of all elements that are not zero, in row-major order.
class WhereKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    Status status;
    const bool known = DispatchType(JoinTypes<NumberTypes, TypeList<bool>>(), in.dtype(),
                                    [&]<typename T>() { status = Run<T>(ctx, in); });
    if (!known) return errors::Unimplemented("Where of ", DataTypeName(in.dtype()));
    return status;
  }

 private:
  template <typename T>
  static bool IsTrue(T x) {
    return static_cast<ComputeType<T>>(x) != ComputeType<T>(0);
  }
  template <typename T>
  static Status Run(KernelContext& ctx, const Tensor& in) {
    const auto values = in.flat<T>();
    const int64_t count = std::count_if(values.begin(), values.end(), &IsTrue<T>);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({count, in.rank()})));
    int64_t* row = out->data<int64_t>();
    for (int64_t i = 0; i < in.num_elements(); ++i) {
      if (!IsTrue(values[i])) continue;
      int64_t rest = i;
      for (int k = in.rank() - 1; k >= 0; --k) {
        row[k] = rest % in.dim(k);
        rest /= in.dim(k);
      }
      row += in.rank();
    }
    return OkStatus();
  }
};

}  // namespace

void RegisterSelectKernels(KernelRegistry& r) {
  RegisterCpu<SelectKernel>(r, "Select");
  RegisterCpu<SelectV2Kernel>(r, "SelectV2");
  RegisterCpu<WhereKernel>(r, "Where");
}

}  // namespace millrace
