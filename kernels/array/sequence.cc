// SPDX-License-Identifier: Apache-2.0
// Tensors made by counting: Range, RaggedRange, LinSpace, OneHot, Unique.
#include <cmath>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/array/unique_plan.h"
#include "kernels/common/distinct.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

template <typename T>
class RangeKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    using C = ComputeType<T>;
    for (int i = 0; i < 3; ++i) {
      if (ctx.input(i).num_elements() != 1 || ctx.input(i).rank() > 1) {
        return errors::InvalidArgument("start, limit and delta must be scalars, got shape ",
                                       ctx.input(i).shape().DebugString());
      }
    }
    const C start = static_cast<C>(ctx.input(0).scalar<T>());
    const C limit = static_cast<C>(ctx.input(1).scalar<T>());
    const C delta = static_cast<C>(ctx.input(2).scalar<T>());
    if (delta == C(0)) return errors::InvalidArgument("Requires delta != 0: ", delta);
    if (delta > C(0) ? start > limit : start < limit) {
      return errors::InvalidArgument(
          "Requires start ", delta > C(0) ? "<=" : ">=", " limit when delta ",
          delta > C(0) ? ">" : "<", " 0: ", start, delta > C(0) ? ">" : "<", limit);
    }
    int64_t n;
    if constexpr (std::is_integral_v<C>) {
      // The distance may need all 64 bits.
      const auto distance = delta > C(0)
                                ? static_cast<uint64_t>(limit) - static_cast<uint64_t>(start)
                                : static_cast<uint64_t>(start) - static_cast<uint64_t>(limit);
      const auto step =
          delta > C(0) ? static_cast<uint64_t>(delta) : 0 - static_cast<uint64_t>(delta);
      const uint64_t count = distance / step + (distance % step != 0 ? 1 : 0);
      if (count > static_cast<uint64_t>(INT64_MAX)) {
        return errors::InvalidArgument("Requires fewer than 2^63 elements, got ", count);
      }
      n = static_cast<int64_t>(count);
    } else {
      const double count = std::ceil(std::abs((static_cast<double>(limit) - start) / delta));
      if (!(count < 9.0e18)) {
        return errors::InvalidArgument("Requires ((limit - start) / delta) <= 2^63");
      }
      n = static_cast<int64_t>(count);
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({n})));
    T* dst = out->data<T>();
    C value = start;
    for (int64_t i = 0; i < n; ++i) {
      dst[i] = static_cast<T>(value);
      if (i + 1 < n) value += delta;
    }
    return OkStatus();
  }
};

// Ranges of rows, one behind the other, and where each row begins. An operand that is a scalar is
// the same for all rows.
template <typename T>
class RaggedRangeKernel : public Kernel {
 public:
  explicit RaggedRangeKernel(KernelConstruction& c)
      : Kernel(c), splits_type_(c.attrs().GetOr<DataType>("Tsplits", kInt64)) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const int64_t rows, Rows(ctx));
    MR_ASSIGN_OR_RETURN(Tensor splits, ctx.AllocateTemp(kInt64, Shape({rows + 1})));
    int64_t* const split = splits.data<int64_t>();
    const auto at = [&](int i, int64_t row) {
      return ctx.input(i).template data<T>()[ctx.input(i).rank() == 0 ? 0 : row];
    };
    split[0] = 0;
    for (int64_t row = 0; row < rows; ++row) {
      MR_ASSIGN_OR_RETURN(const int64_t count, Count(at(0, row), at(1, row), at(2, row)));
      if (__builtin_add_overflow(split[row], count, &split[row + 1])) {
        return errors::InvalidArgument("Requires fewer than 2^63 values, in ", rows, " rows");
      }
    }
    const std::span<const int64_t> ends(split, static_cast<std::size_t>(rows + 1));
    MR_RETURN_IF_ERROR(CheckFits(splits_type_, ends));
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(1, Shape({split[rows]})));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({rows + 1})));
    for (int64_t row = 0; row <= rows; ++row) {
      if (splits_type_ == kInt32) {
        out->data<int32_t>()[row] = static_cast<int32_t>(split[row]);
      } else {
        out->data<int64_t>()[row] = split[row];
      }
    }
    T* to = values->data<T>();
    for (int64_t row = 0; row < rows; ++row) {
      T value = at(0, row);
      for (int64_t i = split[row]; i < split[row + 1]; ++i) {
        *to++ = value;
        if (i + 1 < split[row + 1]) value += at(2, row);
      }
    }
    return OkStatus();
  }

 private:
  static StatusOr<int64_t> Rows(KernelContext& ctx) {
    constexpr std::string_view kNames[] = {"starts", "limits", "deltas"};
    int64_t rows = -1;
    for (int i = 0; i < 3; ++i) {
      const Tensor& operand = ctx.input(i);
      if (operand.rank() > 1) {
        return errors::InvalidArgument(kNames[i], " must be a scalar or vector, got shape ",
                                       operand.shape().DebugString());
      }
      if (operand.rank() == 0) continue;
      if (rows >= 0 && operand.dim(0) != rows) {
        return errors::InvalidArgument("starts, limits, and deltas must have the same shape, got ",
                                       rows, " rows and ", operand.dim(0), " in ", kNames[i]);
      }
      rows = operand.dim(0);
    }
    return rows < 0 ? 1 : rows;
  }

  // None where the limit lies on the wrong side.
  static StatusOr<int64_t> Count(T start, T limit, T delta) {
    if (delta == T(0)) return errors::InvalidArgument("Requires delta != 0");
    if (delta > T(0) ? !(start < limit) : !(limit < start)) return 0;
    if constexpr (std::is_integral_v<T>) {
      const bool up = delta > T(0);  // distances may need all bits of an int64
      const auto distance = up ? static_cast<uint64_t>(limit) - static_cast<uint64_t>(start)
                               : static_cast<uint64_t>(start) - static_cast<uint64_t>(limit);
      const uint64_t step = up ? static_cast<uint64_t>(delta) : 0 - static_cast<uint64_t>(delta);
      const uint64_t count = distance / step + (distance % step != 0 ? 1 : 0);
      if (count <= static_cast<uint64_t>(INT64_MAX)) return static_cast<int64_t>(count);
    } else {
      const double count = std::ceil(std::abs(static_cast<double>((limit - start) / delta)));
      if (count < 9.0e18) return static_cast<int64_t>(count);
    }
    return errors::InvalidArgument("Requires ((limit - start) / delta) <= 2^63");
  }

  const DataType splits_type_;
};

template <typename T>
class LinSpaceKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    using C = ComputeType<T>;
    if (ctx.input(0).rank() != 0 || ctx.input(1).rank() != 0) {
      return errors::InvalidArgument("start and stop must be scalars");
    }
    const C start = static_cast<C>(ctx.input(0).scalar<T>());
    const C stop = static_cast<C>(ctx.input(1).scalar<T>());
    MR_ASSIGN_OR_RETURN(const int64_t n, IntScalar(ctx.input(2), "num"));
    if (n <= 0) return errors::InvalidArgument("Requires num > 0: ", n);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({n})));
    T* dst = out->data<T>();
    dst[0] = static_cast<T>(start);
    if (n == 1) return OkStatus();
    const C step = (stop - start) / static_cast<C>(n - 1);
    for (int64_t i = 1; i + 1 < n; ++i) dst[i] = static_cast<T>(start + step * static_cast<C>(i));
    dst[n - 1] = static_cast<T>(stop);  // exactly, whatever the steps add up to
    return OkStatus();
  }
};

class OneHotKernel : public Kernel {
 public:
  explicit OneHotKernel(KernelConstruction& c)
      : Kernel(c), axis_(c.attrs().GetOr<int64_t>("axis", -1)) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &indices = ctx.input(0), &on = ctx.input(2), &off = ctx.input(3);
    MR_ASSIGN_OR_RETURN(const int64_t depth, IntScalar(ctx.input(1), "depth"));
    if (depth < 0) return errors::InvalidArgument("depth must be non-negative, got: ", depth);
    if (on.rank() != 0 || off.rank() != 0) {
      return errors::InvalidArgument("on_value and off_value must be scalars");
    }
    MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axis_, indices.rank() + 1, "axis"));
    Dims sizes(indices.shape().dims().begin(), indices.shape().dims().end());
    sizes.insert(sizes.begin() + axis, depth);
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape({sizes.data(), sizes.size()}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (!FillWith(ctx, off.dtype(), off.raw_data(), out->raw_data(), shape.num_elements())) {
      return errors::Unimplemented("OneHot of ", DataTypeName(off.dtype()));
    }
    int64_t inner = 1;
    for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape.dim(i);
    bool known = false;
    DispatchMovable(on.dtype(), [&]<typename T>() {
      const T& value = *static_cast<const T*>(on.raw_data());
      T* dst = static_cast<T*>(out->raw_data());
      known = DispatchType(TypeList<int32_t, int64_t, uint8_t, int8_t>(), indices.dtype(),
                           [&]<typename I>() {
                             const I* index = indices.data<I>();
                             for (int64_t i = 0; i < indices.num_elements(); ++i) {
                               const auto x = static_cast<int64_t>(index[i]);
                               if (x < 0 || x >= depth) continue;  // a row of off values
                               dst[(i / inner * depth + x) * inner + i % inner] = value;
                             }
                           });
    });
    if (!known) {
      return errors::Unimplemented("OneHot of indices of type ", DataTypeName(indices.dtype()));
    }
    return OkStatus();
  }

 private:
  const int64_t axis_;
};

// The distinct elements in the order of their first appearance, and where each element went.
template <typename T>
class UniqueKernel : public Kernel {
 public:
  explicit UniqueKernel(KernelConstruction& c)
      : Kernel(c), index_type_(c.attrs().GetOr<DataType>("out_idx", kInt32)) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_RETURN_IF_ERROR(CheckUnique(in.shape()));
    return index_type_ == kInt64 ? Number<int64_t>(ctx, in) : Number<int32_t>(ctx, in);
  }

 private:
  template <typename Index>
  static Status Number(KernelContext& ctx, const Tensor& in) {
    const auto values = in.flat<T>();
    MR_ASSIGN_OR_RETURN(Tensor * places, ctx.AllocateOutput(1, in.shape()));
    Index* place = places->data<Index>();
    Numbering<T> numbering(in.num_elements());
    std::vector<int64_t> first;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto [number, is_new] = numbering.Add(values[i]);
      if (is_new) first.push_back(static_cast<int64_t>(i));
      place[i] = static_cast<Index>(number);
    }
    const int64_t last = numbering.size() - 1;
    MR_RETURN_IF_ERROR(CheckFits(places->dtype(), {&last, 1}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({numbering.size()})));
    T* to = out->data<T>();
    for (std::size_t i = 0; i < first.size(); ++i) to[i] = values[first[i]];
    return OkStatus();
  }

  const DataType index_type_;
};

template <template <typename> class K, typename... Ts>
void RegisterPerType(KernelRegistry& r, const char* op, const char* attr, TypeList<Ts...>) {
  (r.Register(KernelDef(op).Type<Ts>(attr), &MakeKernel<K<Ts>>), ...);
}

}  // namespace

void RegisterSequenceKernels(KernelRegistry& r) {
  RegisterPerType<RangeKernel>(r, "Range", "Tidx", JoinTypes<FloatTypes, IndexTypes>());
  RegisterPerType<RaggedRangeKernel>(r, "RaggedRange", "T",
                                     TypeList<float, double, int32_t, int64_t>());
  RegisterPerType<LinSpaceKernel>(r, "LinSpace", "T", FloatTypes());
  RegisterCpu<OneHotKernel>(r, "OneHot");
  using UniqueTypes = JoinTypes<RealTypes, TypeList<bool, std::string>>;
  RegisterPerType<UniqueKernel>(r, "Unique", "T", UniqueTypes());
}

}  // namespace millrace
