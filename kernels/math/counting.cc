// SPDX-License-Identifier: Apache-2.0
// Counting values and finding them: histograms, places in sorted lists, distinct slices.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "kernels/array/unique_plan.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/element_copy.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

using CountTypes = TypeList<int32_t, int64_t, float, double>;

// Bincount and DenseBincount: how often each number below `size` occurs, or the sum of the
// weights that stand beside it. Larger numbers are not counted.
class BincountKernel : public Kernel {
 public:
  explicit BincountKernel(KernelConstruction& c)
      : Kernel(c),
        by_row_(c.def().name() == "DenseBincount"),
        only_whether_(c.attrs().GetOr<bool>("binary_output", false)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &in = ctx.input(0), &weights = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const int64_t size, IntScalar(ctx.input(1), "size"));
    if (size < 0) return errors::InvalidArgument("size (", size, ") must be non-negative");
    if (by_row_ && in.rank() > 2) {
      return errors::InvalidArgument("Shape must be at most rank 2 but is rank ", in.rank());
    }
    const bool weighted = weights.num_elements() > 0;
    if (weighted && !(weights.shape() == in.shape())) {
      return errors::InvalidArgument("`weights` must be the same shape as `arr` or a length-0 ",
                                     "`Tensor`, in which case it acts as all weights equal to 1. ",
                                     "Received ", weights.shape().DebugString());
    }
    const bool rows = by_row_ && in.rank() == 2;
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(rows ? Dims{in.dim(0), size} : Dims{size}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    Status status;
    DispatchType(CountTypes(), out->dtype(), [&]<typename T>() {
      std::fill_n(out->data<T>(), shape.num_elements(), T(0));
      DispatchType(IndexTypes(), in.dtype(), [&]<typename I>() {
        const int64_t row = rows ? in.dim(1) : in.num_elements();
        for (int64_t i = 0; i < in.num_elements(); ++i) {
          const auto value = static_cast<int64_t>(in.data<I>()[i]);
          if (value < 0) {
            status = errors::InvalidArgument("Input arr must be non-negative!");
            return;
          }
          if (value >= size) continue;
          T& count = out->data<T>()[(rows ? i / row * size : 0) + value];
          if (only_whether_) {
            count = T(1);
          } else {
            count = static_cast<T>(count + (weighted ? weights.data<T>()[i] : T(1)));
          }
        }
      });
    });
    return status;
  }

 private:
  const bool by_row_, only_whether_;
};

class HistogramKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &values = ctx.input(0), &range = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const int64_t bins, IntScalar(ctx.input(2), "nbins"));
    if (range.rank() != 1 || range.num_elements() != 2) {
      return errors::InvalidArgument("value_range should be a vector of 2 elements.");
    }
    if (bins <= 0) {
      return errors::InvalidArgument("nbins should be a positive number, but got '", bins, "'");
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({bins})));
    Status status;
    DispatchType(IndexTypes(), out->dtype(), [&]<typename I>() {
      I* counts = out->data<I>();
      std::fill_n(counts, bins, I(0));
      DispatchType(CountTypes(), values.dtype(), [&]<typename T>() {
        const auto low = static_cast<double>(range.data<T>()[0]);
        const auto high = static_cast<double>(range.data<T>()[1]);
        if (!(low < high)) {
          status = errors::InvalidArgument("value_range should satisfy value_range[0] < ",
                                           "value_range[1], but got '[", low, ", ", high, "]'");
          return;
        }
        // As TensorFlow rounds it: which bin takes its lower edge depends on it.
        const double step = high / static_cast<double>(bins) - low / static_cast<double>(bins);
        for (const T value : values.flat<T>()) {
          const double at = std::floor((static_cast<double>(value) - low) / step);
          if (std::isnan(at)) {
            status = errors::InvalidArgument("Histogram values must not contain NaN");
            return;
          }
          ++counts[static_cast<int64_t>(std::clamp(at, 0.0, static_cast<double>(bins - 1)))];
        }
      });
    });
    return status;
  }
};

class BucketizeKernel : public Kernel {
 public:
  explicit BucketizeKernel(KernelConstruction& c)
      : Kernel(c), boundaries_(c.attr<std::vector<float>>("boundaries")) {
    if (!std::is_sorted(boundaries_.begin(), boundaries_.end())) {
      c.SetError(errors::InvalidArgument("Expected sorted boundaries"));
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, in.shape()));
    DispatchType(CountTypes(), in.dtype(), [&]<typename T>() {
      for (int64_t i = 0; i < in.num_elements(); ++i) {
        const auto above =
            std::upper_bound(boundaries_.begin(), boundaries_.end(), in.data<T>()[i],
                             [](T value, float boundary) { return value < boundary; });
        out->data<int32_t>()[i] = static_cast<int32_t>(above - boundaries_.begin());
      }
    });
    return OkStatus();
  }

 private:
  const std::vector<float> boundaries_;
};

// LowerBound and UpperBound: where each value would go into the sorted list of its row.
class BoundKernel : public Kernel {
 public:
  explicit BoundKernel(KernelConstruction& c) : Kernel(c), upper_(c.def().name() == "UpperBound") {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &lists = ctx.input(0), &values = ctx.input(1);
    if (lists.rank() != 2 || values.rank() != 2) {
      return errors::InvalidArgument("sorted_inputs and values must be matrices, got shapes ",
                                     lists.shape().DebugString(), " and ",
                                     values.shape().DebugString());
    }
    if (lists.dim(0) != values.dim(0)) {
      return errors::InvalidArgument("Leading dim_size of both tensors must match.");
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, values.shape()));
    if (out->dtype() == kInt32 && lists.dim(1) >= (int64_t{1} << 31)) {
      return errors::InvalidArgument("trying to return indices that do not fit int32");
    }
    DispatchType(RealTypes(), values.dtype(), [&]<typename T>() {
      for (int64_t i = 0; i < values.num_elements(); ++i) {
        const T* begin = lists.data<T>() + i / values.dim(1) * lists.dim(1);
        const T* end = begin + lists.dim(1);
        const T value = values.data<T>()[i];
        const int64_t at =
            (upper_ ? std::upper_bound(begin, end, value) : std::lower_bound(begin, end, value)) -
            begin;
        if (out->dtype() == kInt32) {
          out->data<int32_t>()[i] = static_cast<int32_t>(at);
        } else {
          out->data<int64_t>()[i] = at;
        }
      }
    });
    return OkStatus();
  }

 private:
  const bool upper_;
};

// Flat indices to one row of coordinates for each dimension.
class UnravelIndexKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& indices = ctx.input(0);
    if (indices.rank() > 1) {
      return errors::InvalidArgument("The indices can only be scalar or vector, got \"",
                                     indices.shape().DebugString(), "\"");
    }
    if (indices.num_elements() == 0) {
      return errors::InvalidArgument("received empty tensor indices: Tensor<type: ",
                                     DataTypeName(indices.dtype()), " shape: [0] values: >");
    }
    if (ctx.input(1).rank() != 1) {
      return errors::InvalidArgument("The indices can only be 1-D, got \"",
                                     ctx.input(1).shape().DebugString(), "\"");
    }
    MR_ASSIGN_OR_RETURN(const Dims dims, IntVector(ctx.input(1), "dims", true));
    MR_ASSIGN_OR_RETURN(
        const int64_t total,
        ProductOf(dims, indices.dtype() == kInt32 ? int64_t{INT32_MAX} : INT64_MAX));
    const auto rank = static_cast<int64_t>(dims.size());
    const int64_t count = indices.num_elements();
    MR_ASSIGN_OR_RETURN(
        Tensor * out,
        ctx.AllocateOutput(0, indices.rank() == 0 ? Shape({rank}) : Shape({rank, count})));
    Status status;
    DispatchType(IndexTypes(), indices.dtype(), [&]<typename I>() {
      for (int64_t i = 0; i < count; ++i) {
        auto rest = static_cast<int64_t>(indices.data<I>()[i]);
        if (rest >= total) {  // negative ones have coordinates, negative or zero
          status = errors::InvalidArgument("index is out of bound as with dims");
          return;
        }
        for (int64_t d = rank; d-- > 0; rest /= dims[d]) {
          out->data<I>()[d * count + i] = static_cast<I>(rest % dims[d]);
        }
      }
    });
    return status;
  }

 private:
  static StatusOr<int64_t> ProductOf(const Dims& dims, int64_t limit) {
    int64_t product = 1;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] == 0) {
        return errors::InvalidArgument(
            "Input dims cannot contain a dim of zero, but dims contains zero at index ", i);
      }
      if (dims[i] < 0) {
        return errors::InvalidArgument("Input dims cannot be negative. Got dim = ", dims[i],
                                       " at index ", i);
      }
      if (product > limit / dims[i]) {
        return errors::InvalidArgument("Input dims product is causing integer overflow: (",
                                       Columns(dims), ")");
      }
      product *= dims[i];
    }
    return product;
  }

  // Numbers as wide as the widest.
  static std::string Columns(const Dims& numbers) {
    std::size_t width = 0;
    for (const int64_t number : numbers) width = std::max(width, StrCat(number).size());
    std::string text;
    for (const int64_t number : numbers) {
      const std::string digits = StrCat(number);
      if (!text.empty()) text += ' ';
      text.append(width - digits.size(), ' ').append(digits);
    }
    return text;
  }
};

// The distinct slices along an axis, in the order of their first occurrence.
class UniqueV2Kernel : public Kernel {
 public:
  explicit UniqueV2Kernel(KernelConstruction& c) : Kernel(c), index_type_(c.output_types()[1]) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Dims axes, IntVector(ctx.input(1), "axis", true));
    if (axes.size() > 1) {
      return errors::InvalidArgument("axis does not support input tensors larger than 1 elements");
    }
    int axis = 0;
    if (axes.empty()) {
      MR_RETURN_IF_ERROR(CheckUnique(in.shape()));
    } else {
      MR_ASSIGN_OR_RETURN(axis, NormalizeAxis(axes[0], in.rank(), "axis"));
    }
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < axis; ++i) outer *= in.dim(i);
    for (int i = axis + 1; i < in.rank(); ++i) inner *= in.dim(i);
    const int64_t size = in.dim(axis);
    // One place for each slice, also for those without elements.
    MR_RETURN_IF_ERROR(ctx.AllocateOutput(1, Shape({size})).status());
    std::vector<int64_t> firsts, places(static_cast<std::size_t>(size));
    StringMap<int64_t> seen;
    for (int64_t i = 0; i < size; ++i) {
      std::string key;
      bool equals_itself = true;
      for (int64_t o = 0; o < outer; ++o) {
        equals_itself &= AppendKey(in, (o * size + i) * inner, inner, &key);
      }
      const auto next = static_cast<int64_t>(firsts.size());
      places[i] = equals_itself ? seen.try_emplace(key, next).first->second : next;
      if (places[i] == next) firsts.push_back(i);
    }
    Dims dims(in.shape().dims().begin(), in.shape().dims().end());
    const auto distinct = static_cast<int64_t>(firsts.size());
    dims[axis] = distinct;
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < distinct; ++i) {
        CopyRange(in, (o * size + firsts[i]) * inner, out, (o * distinct + i) * inner, inner);
      }
    }
    MR_RETURN_IF_ERROR(CheckFits(index_type_, places));
    ctx.SetOutput(1, IndexTensor(index_type_, places));
    return OkStatus();
  }

 private:
  // What is equal for equal elements only, as in common/distinct.h: zeros of both signs are. False
  // if there is a NaN among them, which equals nothing.
  static bool AppendKey(const Tensor& in, int64_t at, int64_t n, std::string* key) {
    if (in.dtype() == kString) {
      for (int64_t i = at; i < at + n; ++i) {
        const std::string& text = in.data<std::string>()[i];
        const uint64_t length = text.size();
        key->append(reinterpret_cast<const char*>(&length), sizeof(length));
        key->append(text);
      }
      return true;
    }
    const std::size_t begin = key->size(), width = DataTypeSize(in.dtype());
    key->append(static_cast<const char*>(in.raw_data()) + at * static_cast<int64_t>(width),
                static_cast<std::size_t>(n) * width);
    bool equals_itself = true;
    DispatchType(FloatTypes(), in.dtype(), [&]<typename T>() {
      for (int64_t i = 0; i < n; ++i) {
        const auto x = static_cast<ComputeType<T>>(in.data<T>()[at + i]);
        equals_itself &= x == x;
        if (x != 0) continue;
        std::fill_n(key->begin() + static_cast<std::ptrdiff_t>(begin + i * sizeof(T)), sizeof(T),
                    '\0');
      }
    });
    return equals_itself;
  }

  const DataType index_type_;
};

// Products of three-dimensional vectors.
class CrossKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &a = ctx.input(0), &b = ctx.input(1);
    if (!(a.shape() == b.shape())) {
      return errors::InvalidArgument("Both inputs must be of same shape: ", a.shape().DebugString(),
                                     " vs. ", b.shape().DebugString());
    }
    if (a.rank() < 1) return errors::InvalidArgument("Input must be at least 1D");
    if (a.dim(a.rank() - 1) != 3) {
      return errors::FailedPrecondition(
          "Cross-products are only defined for 3-element vectors, got shape ",
          a.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, a.shape()));
    DispatchType(RealTypes(), a.dtype(), [&]<typename T>() {
      using C = ComputeType<T>;
      for (int64_t i = 0; i < a.num_elements(); i += 3) {
        C u[3], v[3];
        for (int k = 0; k < 3; ++k) {
          u[k] = static_cast<C>(a.data<T>()[i + k]);
          v[k] = static_cast<C>(b.data<T>()[i + k]);
        }
        for (int k = 0; k < 3; ++k) {
          const int m = (k + 1) % 3, n = (k + 2) % 3;
          out->data<T>()[i + k] = static_cast<T>(u[m] * v[n] - u[n] * v[m]);
        }
      }
    });
    return OkStatus();
  }
};

}  // namespace

void RegisterCountingKernels(KernelRegistry& r) {
  r.Register(KernelDef("Bincount").Types("T", DataTypesOf(CountTypes())),
             MakeKernel<BincountKernel>);
  r.Register(KernelDef("DenseBincount").Types("T", DataTypesOf(CountTypes())),
             MakeKernel<BincountKernel>);
  RegisterCpu<HistogramKernel>(r, "HistogramFixedWidth");
  RegisterCpu<BucketizeKernel>(r, "Bucketize");
  for (const char* op : {"LowerBound", "UpperBound"}) {
    r.Register(KernelDef(op).Types("T", DataTypesOf(RealTypes())), MakeKernel<BoundKernel>);
  }
  RegisterCpu<UnravelIndexKernel>(r, "UnravelIndex");
  r.Register(KernelDef("UniqueV2")
                 .Types("T", DataTypesOf(JoinTypes<RealTypes, TypeList<bool, std::string>>())),
             MakeKernel<UniqueV2Kernel>);
  r.Register(KernelDef("Cross").Types("T", DataTypesOf(RealTypes())), MakeKernel<CrossKernel>);
}

}  // namespace millrace
