// SPDX-License-Identifier: Apache-2.0
// Summaries: what training tells people, as messages for event files.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/message_text.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"
#include "proto/summary.pb.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

double NumberAt(const Tensor& t, int64_t i) {
  double value = 0;
  DispatchType(RealTypes(), t.dtype(), [&]<typename T>() {
    value = static_cast<double>(static_cast<ComputeType<T>>(t.data<T>()[i]));
  });
  return value;
}

Status SetSummary(KernelContext& ctx, const pb::Summary& summary) {
  MR_ASSIGN_OR_RETURN(std::string text, MessageText(summary));
  ctx.SetOutput(0, Tensor::String(std::move(text)));
  return OkStatus();
}

class ScalarSummaryKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &tags = ctx.input(0), values = ctx.locked_input(1);
    const bool fits =
        tags.shape() == values.shape() || (tags.num_elements() == 1 && values.num_elements() == 1 &&
                                           tags.rank() + values.rank() <= 1);
    if (!fits) {
      return errors::InvalidArgument(
          "tags and values are not the same shape: ", tags.shape().DebugString(),
          " != ", values.shape().DebugString(),
          tags.num_elements() == 1 ? StrCat(" (tag '", tags.data<std::string>()[0], "')") : "");
    }
    pb::Summary summary;
    for (int64_t i = 0; i < tags.num_elements(); ++i) {
      pb::Summary::Value* value = summary.add_value();
      value->set_tag(tags.data<std::string>()[i]);
      value->set_simple_value(static_cast<float>(NumberAt(values, i)));
    }
    return SetSummary(ctx, summary);
  }
};

// Limits that grow by a tenth from 1e-12 to 1e20, on both sides of zero.
const std::vector<double>& BucketLimits() {
  static const auto* const limits = [] {
    std::vector<double> up;
    for (double v = 1e-12; v < 1e20; v *= 1.1) up.push_back(v);
    up.push_back(DBL_MAX);
    auto* all = new std::vector<double>;
    for (auto it = up.rbegin(); it != up.rend(); ++it) all->push_back(-*it);
    all->push_back(0.0);
    all->insert(all->end(), up.begin(), up.end());
    return all;
  }();
  return *limits;
}

class HistogramSummaryKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor &tag = ctx.input(0), values = ctx.locked_input(1);
    if (tag.rank() != 0) return errors::InvalidArgument("tags must be scalar");
    pb::Summary summary;
    pb::Summary::Value* value = summary.add_value();
    value->set_tag(tag.scalar<std::string>());
    MR_RETURN_IF_ERROR(Fill(values, value->mutable_histo()));
    return SetSummary(ctx, summary);
  }

 private:
  Status Fill(const Tensor& values, pb::HistogramProto* out) const {
    const std::vector<double>& limits = BucketLimits();
    std::vector<double> counts(limits.size(), 0.0);
    double least = DBL_MAX, most = -DBL_MAX, sum = 0, squares = 0;
    const int64_t n = values.num_elements();
    for (int64_t i = 0; i < n; ++i) {
      const double v = NumberAt(values, i);
      if (std::isnan(v)) return errors::InvalidArgument("Nan in summary histogram for: ", name());
      if (std::isinf(v)) {
        return errors::InvalidArgument("Infinity in summary histogram for: ", name());
      }
      counts[std::min<std::size_t>(
          std::upper_bound(limits.begin(), limits.end(), v) - limits.begin(), limits.size() - 1)] +=
          1;
      least = std::min(least, v);
      most = std::max(most, v);
      sum += v;
      squares += v * v;
    }
    out->set_min(n == 0 ? DBL_MAX : least);
    out->set_max(n == 0 ? -DBL_MAX : most);
    out->set_num(static_cast<double>(n));
    out->set_sum(sum);
    out->set_sum_squares(squares);
    // Of a run of empty buckets only the last limit is told.
    for (std::size_t i = 0; i < limits.size();) {
      double end = limits[i], count = counts[i];
      ++i;
      while (count <= 0 && i < limits.size() && counts[i] <= 0) end = limits[i++];
      out->add_bucket_limit(end);
      out->add_bucket(count);
    }
    if (n == 0) {
      out->clear_bucket_limit();
      out->clear_bucket();
      out->add_bucket_limit(DBL_MAX);
      out->add_bucket(0);
    }
    return OkStatus();
  }
};

// TensorSummary and TensorSummaryV2.
class TensorSummaryKernel : public Kernel {
 public:
  explicit TensorSummaryKernel(KernelConstruction& c)
      : Kernel(c), v2_(c.def().name() == "TensorSummaryV2") {}
  Status Compute(KernelContext& ctx) override {
    const Tensor tensor = ctx.locked_input(v2_ ? 1 : 0);
    pb::Summary summary;
    pb::Summary::Value* value = summary.add_value();
    if (v2_) {
      if (ctx.input(0).rank() != 0) return errors::InvalidArgument("tag must be scalar");
      if (ctx.input(2).rank() != 0) {
        return errors::InvalidArgument("serialized_summary_metadata must be scalar");
      }
      value->set_tag(ctx.input(0).scalar<std::string>());
      if (!value->mutable_metadata()->ParseFromString(ctx.input(2).scalar<std::string>())) {
        return errors::InvalidArgument("serialized_summary_metadata is not a SummaryMetadata");
      }
    } else {
      value->set_node_name(name());
    }
    if (tensor.dtype() == kString) {
      TensorToReadableProto(tensor, value->mutable_tensor());
    } else {
      TensorToProto(tensor, value->mutable_tensor());
    }
    return SetSummary(ctx, summary);
  }

 private:
  const bool v2_;
};

class MergeSummaryKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    pb::Summary all;
    StringSet tags;
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      for (const std::string& text : ctx.input(i).flat<std::string>()) {
        pb::Summary summary;
        if (!summary.ParseFromString(text)) {
          return errors::InvalidArgument("Could not parse one of the summary inputs");
        }
        for (auto& value : *summary.mutable_value()) {
          const std::string& tag = value.tag();
          // Tensor summaries of the first form have no tag of their own.
          if (!tag.empty() && !tags.insert(tag).second) {
            return errors::InvalidArgument("Duplicate tag ", tag, " found in summary inputs");
          }
          all.add_value()->Swap(&value);
        }
      }
    }
    return SetSummary(ctx, all);
  }
};

}  // namespace

void RegisterSummaryKernels(KernelRegistry& r) {
  RegisterCpu<ScalarSummaryKernel>(r, "ScalarSummary");
  RegisterCpu<HistogramSummaryKernel>(r, "HistogramSummary");
  RegisterCpu<TensorSummaryKernel>(r, "TensorSummary");
  RegisterCpu<TensorSummaryKernel>(r, "TensorSummaryV2");
  RegisterCpu<MergeSummaryKernel>(r, "MergeSummary");
}

}  // namespace millrace
