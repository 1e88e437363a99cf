// SPDX-License-Identifier: Apache-2.0
// Putting rows where indices say: DynamicStitch, DynamicPartition, ScatterNd, SparseToDense.
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/array/bad_indices.h"
#include "kernels/array/scatter_plan.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/elementwise.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/slice_indices.h"
#include "kernels/common/strided_copy.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// N index tensors, then N data tensors; later rows win. Rows that nobody names are zero.
class DynamicStitchKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const int n = ctx.num_inputs() / 2;
    const Shape row = RowShape(ctx.input(n).shape(), ctx.input(0).shape());
    int64_t max_index = -1;
    for (int i = 0; i < n; ++i) {
      const Tensor &indices = ctx.input(i), &data = ctx.input(n + i);
      MR_RETURN_IF_ERROR(
          CheckStitched(i, indices, data.shape(), ctx.input(0).shape(), ctx.input(n).shape()));
      for (int32_t x : indices.flat<int32_t>()) max_index = std::max<int64_t>(max_index, x);
    }
    Dims dims{max_index + 1};
    dims.insert(dims.end(), row.dims().begin(), row.dims().end());
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape({dims.data(), dims.size()}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    FillZero(ctx, out->dtype(), out->raw_data(), shape.num_elements());
    const int64_t run = row.num_elements();
    const bool movable = DispatchMovable(out->dtype(), [&]<typename T>() {
      T* dst = static_cast<T*>(out->raw_data());
      for (int i = 0; i < n; ++i) {
        const T* src = static_cast<const T*>(ctx.input(n + i).raw_data());
        for (int32_t x : ctx.input(i).flat<int32_t>()) {
          // Checked again: the indices may be another writer's memory.
          if (x < 0 || x > max_index) continue;
          std::copy_n(src, run, dst + x * run);
          src += run;
        }
      }
    });
    if (!movable) return errors::Unimplemented("DynamicStitch of ", DataTypeName(out->dtype()));
    return OkStatus();
  }
};

class DynamicPartitionKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &data = ctx.input(0), &partitions = ctx.input(1);
    const int n = ctx.num_outputs();
    MR_RETURN_IF_ERROR(CheckPartitions(data.shape(), partitions.shape()));
    const auto part = partitions.flat<int32_t>();
    Dims counts(n, 0);
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (part[i] < 0 || part[i] >= n) {
        const std::string at = IndexText(partitions.shape(), static_cast<int64_t>(i));
        return errors::InvalidArgument("partitions", at.empty() ? "" : StrCat("[", at, "]"), " = ",
                                       part[i], " is not in [0, ", n, ")");
      }
      ++counts[part[i]];
    }
    const Shape row = RowShape(data.shape(), partitions.shape());
    const int64_t run = row.num_elements();
    absl::InlinedVector<void*, 8> at(n);
    for (int i = 0; i < n; ++i) {
      Shape shape = row;
      shape.InsertDim(0, counts[i]);
      MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(i, shape));
      at[i] = out->raw_data();
    }
    const bool movable = DispatchMovable(data.dtype(), [&]<typename T>() {
      const T* src = static_cast<const T*>(data.raw_data());
      for (int32_t p : part) {
        if (p < 0 || p >= n || counts[p]-- <= 0) continue;
        at[p] = std::copy_n(src, run, static_cast<T*>(at[p]));
        src += run;
      }
    });
    if (!movable) return errors::Unimplemented("DynamicPartition of ", DataTypeName(data.dtype()));
    return OkStatus();
  }
};

// Reads row `i` of an index matrix as an offset into `shape`'s leading axes; -1 if outside.
template <typename I>
int64_t FlatIndex(const I* index, int64_t depth, const Shape& shape) {
  int64_t flat = 0;
  for (int64_t k = 0; k < depth; ++k) {
    const auto x = static_cast<int64_t>(index[k]);
    if (x < 0 || x >= shape.dim(static_cast<int>(k))) return -1;
    flat = flat * shape.dim(static_cast<int>(k)) + x;
  }
  return flat;
}

// Zeros, plus the updates; rows named twice are summed: truths by or, strings one behind the other.
class ScatterNdKernel : public Kernel {
 public:
  explicit ScatterNdKernel(KernelConstruction& c) : Kernel(c), ignore_bad_(IgnoresBadIndices(c)) {}
  using Types = JoinTypes<NumberTypes, TypeList<bool, std::string>>;
  Status Compute(KernelContext& ctx) override {
    const Tensor &indices = ctx.input(0), &updates = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(ctx.input(2), "shape"));
    MR_ASSIGN_OR_RETURN(const SlicesPlan plan,
                        PlanScatterNd(shape, indices.shape(), updates.shape()));
    const int64_t depth = plan.depth, rows = plan.count, run = plan.inner;
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    FillZero(ctx, out->dtype(), out->raw_data(), shape.num_elements());
    int64_t bad = -1;
    bool known_index = false;
    const bool known = DispatchType(Types(), updates.dtype(), [&]<typename T>() {
      known_index =
          DispatchType(TypeList<int16_t, int32_t, int64_t>(), indices.dtype(), [&]<typename I>() {
            const T* src = updates.data<T>();
            T* dst = out->data<T>();
            for (int64_t i = 0; i < rows; ++i) {
              const int64_t at = FlatIndex(indices.data<I>() + i * depth, depth, shape);
              if (at < 0) {
                if (ignore_bad_) continue;
                bad = i;
                return;
              }
              for (int64_t k = 0; k < run; ++k) {
                AddTo(src[i * run + k], &dst[at * run + k]);
              }
            }
          });
    });
    if (!known) return errors::Unimplemented("ScatterNd of ", DataTypeName(updates.dtype()));
    if (!known_index) {
      return errors::Unimplemented("ScatterNd by indices of type ", DataTypeName(indices.dtype()));
    }
    if (bad >= 0) return BadSlice(indices, bad, "shape", shape);
    return OkStatus();
  }

 private:
  template <typename T>
  static void AddTo(const T& update, T* sum) {
    if constexpr (std::is_same_v<T, bool>) {
      *sum = *sum || update;
    } else if constexpr (std::is_same_v<T, std::string>) {
      *sum += update;
    } else {
      *sum =
          static_cast<T>(static_cast<ComputeType<T>>(*sum) + static_cast<ComputeType<T>>(update));
    }
  }

  const bool ignore_bad_;
};

class SparseToDenseKernel : public Kernel {
 public:
  explicit SparseToDenseKernel(KernelConstruction& c)
      : Kernel(c), validate_(c.attrs().GetOr<bool>("validate_indices", true)) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &indices = ctx.input(0), &values = ctx.input(2), &fill = ctx.input(3);
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeFromTensor(ctx.input(1), "output_shape"));
    if (indices.rank() > 2) {
      return errors::InvalidArgument(
          "sparse_indices should be a scalar, vector, or matrix, got "
          "shape ",
          indices.shape().DebugString());
    }
    const int64_t rows = indices.rank() > 0 ? indices.dim(0) : 1;
    const int64_t depth = indices.rank() > 1 ? indices.dim(1) : 1;
    if (depth != shape.rank()) {
      return errors::InvalidArgument(
          "output_shape has incorrect number of elements: ", shape.rank(), " should be: ", depth);
    }
    if (fill.rank() != 0) return errors::InvalidArgument("default_value should be a scalar");
    if (values.rank() > 1 || (values.rank() == 1 && values.num_elements() != rows)) {
      return errors::InvalidArgument("sparse_values has incorrect shape ",
                                     values.shape().DebugString(), ", should be [] or [", rows,
                                     "]");
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (!FillWith(ctx, fill.dtype(), fill.raw_data(), out->raw_data(), shape.num_elements())) {
      return errors::Unimplemented("SparseToDense of ", DataTypeName(fill.dtype()));
    }
    Status status;
    bool known = false;
    DispatchMovable(values.dtype(), [&]<typename T>() {
      const T* src = static_cast<const T*>(values.raw_data());
      T* dst = static_cast<T*>(out->raw_data());
      known = DispatchType(IndexTypes(), indices.dtype(), [&]<typename I>() {
        int64_t last = -1;
        for (int64_t i = 0; i < rows && status.ok(); ++i) {
          const int64_t at = FlatIndex(indices.data<I>() + i * depth, depth, shape);
          if (at < 0) {
            status = errors::InvalidArgument(
                "indices[", i, "] is out of bounds: need 0 <= index < ", shape.DebugString());
          } else if (validate_ && at <= last) {
            status = errors::InvalidArgument("indices[", i, "] is ",
                                             at == last ? "repeated" : "out of order");
          } else {
            dst[at] = values.rank() == 0 ? *src : src[i];
            last = at;
          }
        }
      });
    });
    if (!known) return errors::Unimplemented("SparseToDense of ", DataTypeName(indices.dtype()));
    return status;
  }

 private:
  const bool validate_;
};

}  // namespace

void RegisterScatterKernels(KernelRegistry& r) {
  RegisterCpu<DynamicStitchKernel>(r, "DynamicStitch");
  RegisterCpu<DynamicStitchKernel>(r, "ParallelDynamicStitch");
  RegisterCpu<DynamicPartitionKernel>(r, "DynamicPartition");
  r.Register(KernelDef("ScatterNd").Types("T", DataTypesOf(ScatterNdKernel::Types())),
             &MakeKernel<ScatterNdKernel>);
  RegisterCpu<SparseToDenseKernel>(r, "SparseToDense");
}

}  // namespace millrace
