// SPDX-License-Identifier: Apache-2.0
// Reductions of chosen rows, as embeddings of bags of words need them: row indices[i] of the
// data belongs to segment segment_ids[i], which are sorted.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/kernel_context.h"
#include "kernels/math/segment_plan.h"

namespace millrace {
namespace {

enum class Weigh { kSum, kMean, kSqrtN };

// What a segment's rows are divided by.
template <typename C>
C Divisor(Weigh weigh, int64_t rows) {
  const auto n = static_cast<double>(rows);
  if (weigh == Weigh::kMean) return static_cast<C>(n);
  return weigh == Weigh::kSqrtN ? static_cast<C>(std::sqrt(n)) : static_cast<C>(1);
}

// Sorted ids of `segments` segments, and chosen rows of `rows`, segment by segment.
Status CheckChosen(const Dims& ids, const Dims& indices, int64_t segments, int64_t rows) {
  for (std::size_t begin = 0, end; begin < ids.size(); begin = end) {
    const int64_t id = ids[begin];
    for (end = begin; end < ids.size() && ids[end] == id; ++end) continue;
    if (end < ids.size()) MR_RETURN_IF_ERROR(CheckSegmentOrder(ids[end], id));
    if (id < 0 || id >= segments) {
      return errors::InvalidArgument("Segment id ", id, " out of range [0, ", segments,
                                     "), possibly because 'segment_ids' input is not sorted.");
    }
    for (std::size_t i = begin; i < end; ++i) {
      if (indices[i] >= 0 && indices[i] < rows) continue;
      return errors::InvalidArgument("Bad: indices[", i, "] == ", indices[i], " out of range [0, ",
                                     rows, ")");
    }
  }
  return OkStatus();
}

template <Weigh kWeigh, typename T>
class SparseSegmentKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    using C = ComputeType<T>;
    const Tensor& data = ctx.input(0);
    MR_RETURN_IF_ERROR(CheckChosenRows(data.shape(), ctx.input(1).shape(), ctx.input(2).shape()));
    MR_ASSIGN_OR_RETURN(const Dims indices, IntVector(ctx.input(1), "indices", true));
    MR_ASSIGN_OR_RETURN(const Dims ids, IntVector(ctx.input(2), "segment_ids", true));
    const int64_t run = data.dim(0) == 0 ? 0 : data.num_elements() / data.dim(0);
    const int64_t last = ids.empty() ? -1 : ids.back();
    int64_t given = -1;
    if (ctx.num_inputs() == 4) {  // ...WithNumSegments
      MR_ASSIGN_OR_RETURN(given, ReadSegments(ctx.input(3)));
    } else if (!ids.empty()) {
      MR_RETURN_IF_ERROR(CheckLastSegment(last));
    }
    MR_ASSIGN_OR_RETURN(const Shape shape,
                        SegmentsShape(data.shape(), std::max<int64_t>(last, -1), given));
    MR_RETURN_IF_ERROR(CheckChosen(ids, indices, shape.dim(0), data.dim(0)));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const T* in = data.data<T>();
    T* to = out->data<T>();
    std::fill_n(to, shape.num_elements(), T());
    MR_ASSIGN_OR_RETURN(Tensor sums, ctx.AllocateTemp(DataTypeOf<C>(), Shape({run})));
    C* sum = sums.template data<C>();
    for (std::size_t begin = 0, end; begin < ids.size(); begin = end) {
      std::fill_n(sum, run, C());
      for (end = begin; end < ids.size() && ids[end] == ids[begin]; ++end) {
        const T* row = in + indices[end] * run;
        for (int64_t j = 0; j < run; ++j) sum[j] = static_cast<C>(sum[j] + static_cast<C>(row[j]));
      }
      const C divisor = Divisor<C>(kWeigh, static_cast<int64_t>(end - begin));
      for (int64_t j = 0; j < run; ++j) {
        to[ids[begin] * run + j] =
            static_cast<T>(kWeigh == Weigh::kSum ? sum[j] : sum[j] / divisor);
      }
    }
    return OkStatus();
  }
};

// Inputs: gradient of the segments, indices, segment ids, number of rows of the data.
template <Weigh kWeigh, typename T>
class SparseSegmentGradKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    using C = ComputeType<T>;
    const Tensor& gradient = ctx.input(0);
    MR_RETURN_IF_ERROR(
        CheckChosenGradient(gradient.shape(), ctx.input(1).shape(), ctx.input(2).shape()));
    MR_ASSIGN_OR_RETURN(const Dims indices, IntVector(ctx.input(1), "indices", true));
    MR_ASSIGN_OR_RETURN(const Dims ids, IntVector(ctx.input(2), "segment_ids", true));
    MR_ASSIGN_OR_RETURN(const int64_t count, ReadDataRows(ctx.input(3)));
    // TensorFlow looks at no index if there is no row.
    if (count == 0) return SetNothing(ctx, gradient.shape());
    // The V2 ops give the rows that have a gradient only, and which they are.
    Dims touched;
    if (ctx.num_outputs() == 2) {
      touched = indices;
      std::sort(touched.begin(), touched.end());
      touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    }
    const int64_t segments = gradient.dim(0);
    const int64_t run = segments == 0 ? 0 : gradient.num_elements() / segments;
    // Rows without elements take no memory, however many there are.
    std::vector<int64_t> sizes(run == 0 ? 0 : static_cast<std::size_t>(segments), 0);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (indices[i] < 0 || indices[i] >= count) {
        return errors::InvalidArgument("Index ", indices[i], " out of range [0, ", count, ").");
      }
      if (ids[i] < 0 || ids[i] >= segments) {
        return errors::InvalidArgument("Segment id ", ids[i], " out of range [0, ", segments, ").");
      }
      if (run > 0) ++sizes[static_cast<std::size_t>(ids[i])];
    }
    Dims dims(gradient.shape().dims().begin(), gradient.shape().dims().end());
    dims[0] = ctx.num_outputs() == 2 ? static_cast<int64_t>(touched.size()) : count;
    MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape({dims.data(), dims.size()}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const T* from = gradient.data<T>();
    T* to = out->data<T>();
    std::fill_n(to, shape.num_elements(), T());
    for (std::size_t i = 0; run > 0 && i < ids.size(); ++i) {
      const C scale = C(1) / Divisor<C>(kWeigh, sizes[static_cast<std::size_t>(ids[i])]);
      const T* row = from + ids[i] * run;
      int64_t at = indices[i];
      if (ctx.num_outputs() == 2) {
        at = std::lower_bound(touched.begin(), touched.end(), at) - touched.begin();
      }
      T* sum = to + at * run;
      for (int64_t j = 0; j < run; ++j) {
        sum[j] = static_cast<T>(static_cast<C>(sum[j]) + static_cast<C>(row[j]) * scale);
      }
    }
    if (ctx.num_outputs() == 2) ctx.SetOutput(1, IndexTensor(ctx.input(1).dtype(), touched));
    return OkStatus();
  }

 private:
  static Status SetNothing(KernelContext& ctx, const Shape& gradient) {
    Shape shape = gradient;
    shape.SetDim(0, 0);
    MR_RETURN_IF_ERROR(ctx.AllocateOutput(0, shape).status());
    if (ctx.num_outputs() == 2) ctx.SetOutput(1, IndexTensor(ctx.input(1).dtype(), {}));
    return OkStatus();
  }
};

template <template <Weigh, typename> class K, Weigh kWeigh, typename... Ts>
void RegisterPerType(KernelRegistry& r, const std::string& op, TypeList<Ts...>) {
  (r.Register(KernelDef(op).Type<Ts>("T"), &MakeKernel<K<kWeigh, Ts>>), ...);
}

}  // namespace

void RegisterSparseSegmentKernels(KernelRegistry& r) {
  for (const char* end : {"", "WithNumSegments"}) {
    const auto name = [end](const char* op) { return std::string(op) + end; };
    RegisterPerType<SparseSegmentKernel, Weigh::kSum>(r, name("SparseSegmentSum"), RealTypes());
    RegisterPerType<SparseSegmentKernel, Weigh::kMean>(r, name("SparseSegmentMean"), FloatTypes());
    RegisterPerType<SparseSegmentKernel, Weigh::kSqrtN>(r, name("SparseSegmentSqrtN"),
                                                        FloatTypes());
  }
  for (const char* end : {"", "V2"}) {
    const auto name = [end](const char* op) { return std::string(op) + end; };
    RegisterPerType<SparseSegmentGradKernel, Weigh::kSum>(r, name("SparseSegmentSumGrad"),
                                                          FloatTypes());
    RegisterPerType<SparseSegmentGradKernel, Weigh::kMean>(r, name("SparseSegmentMeanGrad"),
                                                           FloatTypes());
    RegisterPerType<SparseSegmentGradKernel, Weigh::kSqrtN>(r, name("SparseSegmentSqrtNGrad"),
                                                            FloatTypes());
  }
}

}  // namespace millrace
