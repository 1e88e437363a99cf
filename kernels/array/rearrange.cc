// SPDX-License-Identifier: Apache-2.0
// Elements in another place: rolled, reversed, told apart, gathered and scattered by
// full index. The types only matter where elements are compared or added.
#include <algorithm>
#include <complex>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/array/bad_indices.h"
#include "kernels/array/gather_plan.h"
#include "kernels/array/layout_plan.h"
#include "kernels/array/scatter_plan.h"
#include "kernels/common/distinct.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/slice_indices.h"
#include "kernels/common/strided_copy.h"
#include "kernels/host_kernels.h"
#include "kernels/state/variable.h"

namespace millrace {
namespace {

class RollKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Dims shifts, IntVector(ctx.input(1), "shift"));
    MR_ASSIGN_OR_RETURN(const Dims axes, IntVector(ctx.input(2), "axis"));
    if (in.rank() < 1) return errors::InvalidArgument("input must be 1-D or higher");
    if (shifts.size() != axes.size()) {
      return errors::InvalidArgument("shift and axis must have the same size");
    }
    Dims by(in.rank(), 0);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      MR_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axes[i], in.rank(), "axis"));
      const int64_t size = std::max<int64_t>(in.dim(axis), 1);
      by[axis] = ((by[axis] + shifts[i]) % size + size) % size;
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    if (in.num_elements() == 0) return OkStatus();
    const int last = in.rank() - 1;
    const int64_t run = in.dim(last), turned = by[last];
    Dims at(in.rank(), 0);
    for (int64_t read = 0; read < in.num_elements(); read += run) {
      int64_t row = 0;
      for (int i = 0; i < last; ++i) row = row * in.dim(i) + (at[i] + by[i]) % in.dim(i);
      CopyRange(in, read, out, row * run + turned, run - turned);
      CopyRange(in, read + run - turned, out, row * run, turned);
      for (int i = last - 1; i >= 0 && ++at[i] == in.dim(i); --i) at[i] = 0;
    }
    return OkStatus();
  }
};

class ReverseSequenceKernel : public Kernel {
 public:
  explicit ReverseSequenceKernel(KernelConstruction& c)
      : Kernel(c), batch_(c.attr<int64_t>("batch_dim")), seq_(c.attr<int64_t>("seq_dim")) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &in = ctx.input(0), &lengths = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const int batch, NormalizeAxis(batch_, in.rank(), "batch_dim"));
    MR_ASSIGN_OR_RETURN(const int seq, NormalizeAxis(seq_, in.rank(), "seq_dim"));
    if (batch == seq) return errors::InvalidArgument("batch_dim == seq_dim == ", seq);
    if (lengths.rank() != 1 || lengths.dim(0) != in.dim(batch)) {
      return errors::InvalidArgument("Length of seq_lengths != input.dims(", batch, "), (",
                                     lengths.num_elements(), " vs. ", in.dim(batch), ")");
    }
    for (int64_t i = 0; i < lengths.num_elements(); ++i) {
      if (IndexAt(lengths, i) < 0 || IndexAt(lengths, i) > in.dim(seq)) {
        return errors::InvalidArgument("seq_lengths(", i, ") > input.dims(", seq, ")");
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    int64_t run = 1;  // elements that stay together
    for (int i = std::max(batch, seq) + 1; i < in.rank(); ++i) run *= in.dim(i);
    const Dims strides = RowMajorStrides(in.shape().dims());
    for (int64_t read = 0; read < in.num_elements(); read += run) {
      const int64_t length = IndexAt(lengths, read / strides[batch] % in.dim(batch));
      const int64_t at = read / strides[seq] % in.dim(seq);
      const int64_t to = at < length ? length - 1 - at : at;
      CopyRange(in, read, out, read + (to - at) * strides[seq], run);
    }
    return OkStatus();
  }

 private:
  const int64_t batch_, seq_;
};

class ConjugateTransposeKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Dims perm, IntVector(ctx.input(1), "perm", true));
    std::vector<bool> seen(in.rank(), false);
    bool valid = static_cast<int>(perm.size()) == in.rank();
    for (std::size_t i = 0; valid && i < perm.size(); ++i) {
      valid = perm[i] >= 0 && perm[i] < in.rank() && !seen[perm[i]];
      if (valid) seen[perm[i]] = true;
    }
    if (!valid) return errors::InvalidArgument("perm must be a permutation of the dimensions");
    Dims dims;
    for (const int64_t axis : perm) dims.push_back(in.dim(static_cast<int>(axis)));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape(dims)));
    const Dims from = RowMajorStrides(in.shape().dims()), to = RowMajorStrides(dims);
    CopyDims axes;
    for (std::size_t i = 0; i < perm.size(); ++i) axes.push_back({dims[i], from[perm[i]], to[i]});
    if (in.num_elements() > 0 &&
        !CopyStrided(ctx, in.dtype(), in.raw_data(), out->raw_data(), std::move(axes))) {
      return errors::Unimplemented(def().name(), " of ", DataTypeName(in.dtype()));
    }
    DispatchType(ComplexTypes(), in.dtype(), [&]<typename T>() {
      for (T& value : out->flat<T>()) value = std::conj(value);
    });
    return OkStatus();
  }
};

class EmptyKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(ctx.input(0), "shape"));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    // Whatever was in this memory before is nobody's business.
    ClearRange(out, 0, shape.num_elements());
    return OkStatus();
  }
};

// --- Telling elements apart -------------------------------------------------------------------

Status CheckVector(const Tensor& t, const char* what) {
  if (t.rank() == 1) return OkStatus();
  return errors::InvalidArgument(what, " should be a 1D vector, got ", t.shape().DebugString());
}

Status NotTold(DataType type) {
  return errors::Unimplemented("elements of type ", DataTypeName(type), " cannot be told apart");
}

class ListDiffKernel : public Kernel {
 public:
  explicit ListDiffKernel(KernelConstruction& c)
      : Kernel(c), index_dtype_(c.attr<DataType>("out_idx")) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &x = ctx.input(0), &y = ctx.input(1);
    MR_RETURN_IF_ERROR(CheckVector(x, "x"));
    MR_RETURN_IF_ERROR(CheckVector(y, "y"));
    std::vector<int64_t> kept;
    const bool known = DispatchType(DistinctTypes(), x.dtype(), [&]<typename T>() {
      Numbering<T> excluded;
      for (const T& value : y.flat<T>()) excluded.Add(value);
      for (int64_t i = 0; i < x.num_elements(); ++i) {
        if (!excluded.Contains(x.data<T>()[i])) kept.push_back(i);
      }
    });
    if (!known) return NotTold(x.dtype());
    const auto n = static_cast<int64_t>(kept.size());
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({n})));
    for (int64_t i = 0; i < n; ++i) CopyRange(x, kept[i], out, i, 1);
    ctx.SetOutput(1, IndexTensor(index_dtype_, kept));
    return OkStatus();
  }

 private:
  const DataType index_dtype_;
};

class UniqueWithCountsKernel : public Kernel {
 public:
  explicit UniqueWithCountsKernel(KernelConstruction& c)
      : Kernel(c), index_dtype_(c.attr<DataType>("out_idx")) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_RETURN_IF_ERROR(CheckVector(x, "unique"));
    std::vector<int64_t> first, index, count;
    const bool known = DispatchType(DistinctTypes(), x.dtype(), [&]<typename T>() {
      Numbering<T> numbering(x.num_elements());
      index.reserve(static_cast<std::size_t>(x.num_elements()));
      for (int64_t i = 0; i < x.num_elements(); ++i) {
        const auto [number, is_new] = numbering.Add(x.data<T>()[i]);
        if (is_new) {
          first.push_back(i);
          count.push_back(0);
        }
        ++count[number];
        index.push_back(number);
      }
    });
    if (!known) return NotTold(x.dtype());
    const auto n = static_cast<int64_t>(first.size());
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({n})));
    for (int64_t i = 0; i < n; ++i) CopyRange(x, first[i], out, i, 1);
    ctx.SetOutput(1, IndexTensor(index_dtype_, index));
    ctx.SetOutput(2, IndexTensor(index_dtype_, count));
    return OkStatus();
  }

 private:
  const DataType index_dtype_;
};

class BroadcastArgsKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Dims a, IntVector(ctx.input(0), "In[0]", true));
    MR_ASSIGN_OR_RETURN(const Dims b, IntVector(ctx.input(1), "In[1]", true));
    Dims out(std::max(a.size(), b.size()), 1);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
      const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
      if (x != y && x != 1 && y != 1) {
        return errors::InvalidArgument("Incompatible shapes: the sizes ", x, " and ", y,
                                       " cannot be broadcast");
      }
      out[out.size() - 1 - i] = x == 1 ? y : x;
    }
    ctx.SetOutput(0, IndexTensor(ctx.input(0).dtype(), out));
    return OkStatus();
  }
};

// --- By full index ----------------------------------------------------------------------------

// Where the `count` slices of `slice` elements lie that the rows of `indices` name, `depth` indices
// each, in a tensor of `shape`. A row that names none is an error, or, to be left out, -1.
Status SliceOffsets(const Tensor& indices, const Shape& shape, int depth, int64_t count,
                    int64_t slice, bool ignore_bad, std::vector<int64_t>* offsets) {
  // Rows that name the whole take no memory, but what is made of each does.
  constexpr int64_t kMostRows = int64_t{1} << 24;
  if (depth == 0 && count > kMostRows) {
    return errors::ResourceExhausted("indices of shape ", indices.shape().DebugString(),
                                     " name the whole tensor more than ", kMostRows, " times");
  }
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = 0;
    for (int k = 0; k < depth; ++k) {
      const int64_t index = IndexAt(indices, i * depth + k);
      if (index < 0 || index >= shape.dim(k)) {
        if (!ignore_bad) {
          return BadSlice(indices, i, "shape", shape);
        }
        at = -1;
        break;
      }
      at = at * shape.dim(k) + index;
    }
    offsets->push_back(at < 0 ? -1 : at * slice);
  }
  return OkStatus();
}

class ResourceGatherNdKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const ResourceHandle* handle, InputHandle(ctx, 0));
    MR_ASSIGN_OR_RETURN(const RefPtr<ResourceVariable> variable, FindVariable(ctx, *handle));
    Tensor params;
    {
      MutexLock lock(&variable->mu);
      params = variable->value;
    }
    const Tensor& indices = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const GatherNdPlan plan, PlanGatherNd(params.shape(), indices.shape()));
    std::vector<int64_t> offsets;
    MR_RETURN_IF_ERROR(
        SliceOffsets(indices, params.shape(), plan.depth, plan.count, plan.inner, false, &offsets));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, plan.out));
    if (out->dtype() != params.dtype()) {
      return errors::InvalidArgument("the variable is of type ", DataTypeName(params.dtype()));
    }
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      CopyRange(params, offsets[i], out, static_cast<int64_t>(i) * plan.inner, plan.inner);
    }
    return OkStatus();
  }
};

// TensorScatterUpdate, Add, Sub, Min and Max; ScatterNdNonAliasingAdd.
class TensorScatterKernel : public Kernel {
 public:
  explicit TensorScatterKernel(KernelConstruction& c)
      : Kernel(c), ignore_bad_(IgnoresBadIndices(c)) {
    const std::string& op = c.def().name();
    rows_ = op == "ScatterNdNonAliasingAdd";
    what_ = op.ends_with("Add")   ? '+'
            : op.ends_with("Sub") ? '-'
            : op.ends_with("Min") ? '<'
            : op.ends_with("Max") ? '>'
                                  : '=';
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor tensor = ctx.locked_input(0);
    Tensor indices = ctx.input(1);
    const Tensor& updates = ctx.input(2);
    if (rows_ && tensor.rank() == 0) {
      return errors::InvalidArgument("Output must be at least 1-D, got shape: []");
    }
    if (rows_ && indices.rank() == 1 && indices.dim(0) == 1) {
      MR_ASSIGN_OR_RETURN(indices, indices.Reshaped(Shape({1, 1})));
    }
    MR_ASSIGN_OR_RETURN(const SlicesPlan plan,
                        PlanTensorScatter(tensor.shape(), indices.shape(), updates.shape()));
    const int64_t slice = plan.inner;
    std::vector<int64_t> offsets;
    MR_RETURN_IF_ERROR(SliceOffsets(indices, tensor.shape(), plan.depth, plan.count, slice,
                                    ignore_bad_, &offsets));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, tensor.shape()));
    CopyRange(tensor, 0, out, 0, tensor.num_elements());
    bool known = what_ == '=';
    for (std::size_t i = 0; known && i < offsets.size(); ++i) {
      if (offsets[i] < 0) continue;
      CopyRange(updates, static_cast<int64_t>(i) * slice, out, offsets[i], slice);
    }
    if (!known) {
      known =
          DispatchType(JoinTypes<NumberTypes, TypeList<bool>>(), tensor.dtype(), [&]<typename T>() {
            const T* by = updates.data<T>();
            for (std::size_t i = 0; i < offsets.size(); ++i, by += slice) {
              if (offsets[i] < 0) continue;
              T* to = out->data<T>() + offsets[i];
              for (int64_t k = 0; k < slice; ++k) to[k] = Combine(to[k], by[k]);
            }
          });
    }
    return known ? OkStatus()
                 : errors::Unimplemented(def().name(), " of ", DataTypeName(tensor.dtype()));
  }

 private:
  template <typename T>
  T Combine(T a, T b) const {
    using C = ComputeType<T>;
    const C x = static_cast<C>(a), y = static_cast<C>(b);
    if (what_ == '+') return static_cast<T>(x + y);  // of truths: one or the other
    if constexpr (!kIsComplex<T>) {
      if (what_ == '<') return static_cast<T>(std::min(x, y));
      if (what_ == '>') return static_cast<T>(std::max(x, y));
    }
    return static_cast<T>(x - y);
  }

  const bool ignore_bad_;
  bool rows_;  // a vector of one index names a row; of more TensorFlow heeds the first alone
  char what_;
};

}  // namespace

void RegisterRearrangeKernels(KernelRegistry& r) {
  RegisterCpu<RollKernel>(r, "Roll");
  RegisterCpu<ReverseSequenceKernel>(r, "ReverseSequence");
  RegisterCpu<ConjugateTransposeKernel>(r, "ConjugateTranspose");
  RegisterCpu<EmptyKernel>(r, "Empty");
  RegisterCpu<ListDiffKernel>(r, "ListDiff");
  RegisterCpu<UniqueWithCountsKernel>(r, "UniqueWithCounts");
  RegisterCpu<BroadcastArgsKernel>(r, "BroadcastArgs");
  RegisterCpu<ResourceGatherNdKernel>(r, "ResourceGatherNd");
  RegisterCpu<TensorScatterKernel>(r, "TensorScatterUpdate");
  for (const char* op : {"TensorScatterAdd", "TensorScatterSub", "ScatterNdNonAliasingAdd"}) {
    r.Register(KernelDef(op).Types("T", DataTypesOf(NumberTypes())),
               MakeKernel<TensorScatterKernel>);
  }
  r.Register(KernelDef("ScatterNdNonAliasingAdd").Type<bool>("T"), MakeKernel<TensorScatterKernel>);
  for (const char* op : {"TensorScatterMin", "TensorScatterMax"}) {
    r.Register(KernelDef(op).Types("T", DataTypesOf(RealTypes())), MakeKernel<TensorScatterKernel>);
  }
}

}  // namespace millrace
