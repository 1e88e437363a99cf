// SPDX-License-Identifier: Apache-2.0
// Einsum of one or two operands. Every label becomes an axis with a stride in each operand and
// in the result (0 where it does not occur, the sum of strides where it occurs twice), which
// sorts labels into batch, rows, columns and summed ones: operands are copied into that order,
// multiplied as matrices, and the products copied out.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/gemm.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/strided_copy.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// A label: a letter, or -1, -2, ... for the axes of an ellipsis, counted from its end.
using Labels = std::vector<int>;

struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

StatusOr<Equation> ParseEquation(std::string_view text, int operands) {
  Equation e;
  const std::size_t arrow = text.find("->");
  if (arrow == std::string_view::npos) {
    return errors::InvalidArgument("Expecting exactly one '->' in einsum equation: ", text);
  }
  const auto clean = [](std::string_view part) {
    std::string out;
    for (char c : part) {
      if (c != ' ') out += c;
    }
    return out;
  };
  for (const std::string_view part : StrSplit(text.substr(0, arrow), ',')) {
    e.operands.push_back(clean(part));
  }
  e.result = clean(text.substr(arrow + 2));
  if (static_cast<int>(e.operands.size()) != operands) {
    return errors::InvalidArgument("Expecting ", e.operands.size(), " inputs in equation ", text,
                                   " but got: ", operands);
  }
  if (operands > 2) {
    return errors::InvalidArgument("Cannot have more than 2 operands in einsum equation: ", text);
  }
  return e;
}

// The labels of a subscript, with an ellipsis of `dots` axes. InvalidArgument if it is garbled.
StatusOr<Labels> Expand(const std::string& subscript, int dots) {
  Labels labels;
  for (std::size_t i = 0; i < subscript.size(); ++i) {
    const char c = subscript[i];
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      labels.push_back(c);
    } else if (subscript.compare(i, 3, "...") == 0) {
      for (int d = dots; d >= 1; --d) labels.push_back(-d);
      i += 2;
    } else {
      return errors::InvalidArgument("Invalid character at position ", i, " of the subscript ",
                                     subscript);
    }
  }
  return labels;
}

// How many axes the ellipsis of a subscript stands for; -1 if there is none.
int DotsOf(const std::string& subscript, int rank) {
  const std::size_t at = subscript.find("...");
  return at == std::string::npos ? -1 : rank - static_cast<int>(subscript.size() - 3);
}

struct Axis {
  int label;
  int64_t size = 1;
  std::array<int64_t, 2> stride = {0, 0};
  std::array<bool, 2> in = {false, false};  // occurs, and is not repeated by broadcasting
  int64_t result_stride = 0;
  bool in_result = false;
};

using EinsumTypes = JoinTypes<JoinTypes<FloatTypes, IndexTypes>, ComplexTypes>;

class EinsumKernel : public Kernel {
 public:
  explicit EinsumKernel(KernelConstruction& c) : Kernel(c) {
    const auto text = c.attr<std::string>("equation");
    StatusOr<Equation> equation = ParseEquation(text, static_cast<int>(c.attr<int64_t>("N")));
    if (equation.ok()) {
      equation_ = *std::move(equation);
    } else {
      c.SetError(equation.status());
    }
  }

  Status Compute(KernelContext& ctx) override {
    std::vector<Axis> axes;
    MR_ASSIGN_OR_RETURN(const Shape shape, Resolve(ctx, &axes));
    Status status;
    const DataType dtype = ctx.input(0).dtype();
    const bool known = DispatchType(EinsumTypes(), dtype,
                                    [&]<typename T>() { status = Run<T>(ctx, axes, shape); });
    return known ? status : errors::Unimplemented("Einsum of ", DataTypeName(dtype));
  }

 private:
  // Fills `axes` from the shapes of the inputs; returns the shape of the result.
  StatusOr<Shape> Resolve(KernelContext& ctx, std::vector<Axis>* axes) const {
    int most_dots = 0;
    const auto find = [&](int label) -> Axis& {
      for (Axis& axis : *axes) {
        if (axis.label == label) return axis;
      }
      axes->push_back({.label = label});
      return axes->back();
    };
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      const Shape& shape = ctx.input(i).shape();
      const int dots = DotsOf(equation_.operands[i], shape.rank());
      MR_ASSIGN_OR_RETURN(const Labels labels, Expand(equation_.operands[i], dots));
      if (dots < -1 || static_cast<int>(labels.size()) != shape.rank()) {
        return errors::InvalidArgument("Expected input ", i, " to have the rank of its subscript ",
                                       equation_.operands[i], " but got shape ",
                                       shape.DebugString());
      }
      most_dots = std::max(most_dots, dots);
      const Dims strides = RowMajorStrides(shape.dims());
      for (int k = 0; k < shape.rank(); ++k) {
        Axis& axis = find(labels[k]);
        const int64_t size = shape.dim(k);
        const bool repeats = axis.label < 0 && size == 1;  // an ellipsis broadcasts
        if (repeats) continue;
        if (axis.size != size && (axis.size != 1 || axis.in[0] || axis.in[1])) {
          return errors::InvalidArgument("Expected dimension ", axis.size, " at axis ", k,
                                         " of the input shaped ", shape.DebugString(),
                                         " but got dimension ", size);
        }
        axis.size = size;
        axis.stride[i] += strides[k];
        axis.in[i] = true;
      }
    }
    MR_ASSIGN_OR_RETURN(const Labels result, Expand(equation_.result, most_dots));
    Dims dims;
    for (const int label : result) {
      Axis& axis = find(label);
      if (label > 0 && !axis.in[0] && !axis.in[1]) {
        return errors::InvalidArgument("The label ", std::string(1, static_cast<char>(label)),
                                       " of the result occurs in no input");
      }
      axis.in_result = true;
      dims.push_back(axis.size);
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape({dims.data(), dims.size()}));
    const Dims strides = RowMajorStrides(shape.dims());
    for (std::size_t k = 0; k < result.size(); ++k) find(result[k]).result_stride += strides[k];
    return shape;
  }

  // The axes of one kind, and how many elements they span.
  struct Group {
    std::vector<const Axis*> axes;
    int64_t size = 1;
    void Add(const Axis& axis) {
      axes.push_back(&axis);
      size *= axis.size;
    }
  };

  // Operand `i` in the order of the groups, dense.
  static StatusOr<Tensor> Gathered(KernelContext& ctx, int i,
                                   std::initializer_list<const Group*> groups) {
    CopyDims dims;
    Dims sizes;
    for (const Group* group : groups) {
      for (const Axis* axis : group->axes) {
        dims.push_back({axis->size, axis->stride[i], 0});
        sizes.push_back(axis->size);
      }
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape({sizes.data(), sizes.size()}));
    MR_ASSIGN_OR_RETURN(Tensor out, ctx.AllocateTemp(ctx.input(i).dtype(), shape));
    const Dims strides = RowMajorStrides(shape.dims());
    for (std::size_t k = 0; k < dims.size(); ++k) dims[k].dst_stride = strides[k];
    CopyStrided(ctx, out.dtype(), ctx.input(i).raw_data(), out.raw_data(), std::move(dims));
    return out;
  }

  template <typename T>
  Status Run(KernelContext& ctx, const std::vector<Axis>& axes, const Shape& shape) const {
    Group batch, rows, columns, summed;
    for (const Axis& axis : axes) {
      if (!axis.in_result) {
        summed.Add(axis);
      } else if (axis.in[0] && axis.in[1]) {
        batch.Add(axis);
      } else {
        (axis.in[1] ? columns : rows).Add(axis);
      }
    }
    MR_ASSIGN_OR_RETURN(const Tensor a, Gathered(ctx, 0, {&batch, &rows, &summed}));
    Tensor b;
    if (ctx.num_inputs() > 1) {
      MR_ASSIGN_OR_RETURN(b, Gathered(ctx, 1, {&batch, &summed, &columns}));
    }
    const int64_t m = rows.size, n = columns.size, k = summed.size;
    MR_ASSIGN_OR_RETURN(Tensor products,
                        ctx.AllocateTemp(DataTypeOf<T>(), Shape({batch.size, m, n})));
    for (int64_t i = 0; i < batch.size; ++i) {
      Multiply(ctx, m, n, k, a.data<T>() + i * m * k,
               ctx.num_inputs() > 1 ? b.data<T>() + i * k * n : nullptr,
               products.data<T>() + i * m * n);
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    CopyDims dims;
    for (const Group* group : {&batch, &rows, &columns}) {
      for (const Axis* axis : group->axes) {
        dims.push_back({axis->size, 0, axis->result_stride});
      }
    }
    int64_t step = 1;
    for (std::size_t d = dims.size(); d-- > 0;) {
      dims[d].src_stride = step;
      step *= dims[d].size;
    }
    // A label that the result names twice fills a diagonal only.
    FillZero(ctx, DataTypeOf<T>(), out->raw_data(), shape.num_elements());
    CopyStrided(ctx, DataTypeOf<T>(), products.raw_data(), out->raw_data(), std::move(dims));
    return OkStatus();
  }

  // c[m, n] = a[m, k] * b[k, n]; without b the sums of a's rows.
  template <typename T>
  static void Multiply(KernelContext& ctx, int64_t m, int64_t n, int64_t k, const T* a, const T* b,
                       T* c) {
    if constexpr (std::is_floating_point_v<T>) {
      if (b != nullptr) {
        Gemm<T>(m, n, k, {a, k, 1}, {b, n, 1}, c, n, false,
                [&ctx](int64_t count, double cost, absl::FunctionRef<void(int64_t, int64_t)> f) {
                  ctx.ParallelFor(count, cost, f);
                });
        return;
      }
    }
    using C = ComputeType<T>;
    ctx.ParallelFor(m, static_cast<double>(n * k), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          C sum = C();
          for (int64_t p = 0; p < k; ++p) {
            const C x = static_cast<C>(a[i * k + p]);
            sum = static_cast<C>(sum + (b == nullptr ? x : x * static_cast<C>(b[p * n + j])));
          }
          c[i * n + j] = static_cast<T>(sum);
        }
      }
    });
  }

  Equation equation_;
};

}  // namespace

void RegisterEinsumKernels(KernelRegistry& r) {
  r.Register(KernelDef("Einsum").Types("T", DataTypesOf(EinsumTypes())), MakeKernel<EinsumKernel>);
}

}  // namespace millrace
