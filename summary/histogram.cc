// SPDX-License-Identifier: Apache-2.0
// Histograms as TensorFlow 2 has them: rows of left edge, right edge and count.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "summary/event_writer.h"
#include "tensor/cast.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

Status CheckFinite(std::string_view tag, std::span<const double> values) {
  int64_t nans = 0, infinities = 0;
  for (const double v : values) {
    nans += std::isnan(v);
    infinities += std::isinf(v);
  }
  if (nans + infinities == 0) return OkStatus();
  return errors::InvalidArgument("the histogram '", tag, "' cannot be made: of ", values.size(),
                                 " values ", nans, " are NaN and ", infinities, " infinite");
}

// All zeros without values. Where all are equal, the last bucket has them and no bucket a width.
Tensor Buckets(std::span<const double> values, int buckets) {
  Tensor rows(kDouble, Shape({buckets, 3}));
  double* const out = rows.data<double>();
  std::fill_n(out, 3 * buckets, 0.0);
  if (values.empty()) return rows;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  // Halves: the difference of two doubles may be none.
  const double low = *least / 2, high = *most / 2, width = (high - low) / buckets;
  for (int i = 0; i < buckets; ++i) {
    out[3 * i] = (low + i * width) * 2;
    out[3 * i + 1] = i + 1 == buckets ? *most : (low + (i + 1) * width) * 2;
  }
  for (const double v : values) {
    const int i = width > 0 ? static_cast<int>((v / 2 - low) / width) : buckets - 1;
    out[3 * std::clamp(i, 0, buckets - 1) + 2] += 1;
  }
  return rows;
}

}  // namespace

Status EventWriter::WriteHistogram(std::string_view tag, const Tensor& values, int64_t step,
                                   int buckets, std::string_view description) {
  if (buckets < 1) {
    return errors::InvalidArgument("the histogram '", tag, "' has ", buckets,
                                   " buckets: at least 1 is needed");
  }
  if (values.dtype() == kComplex64 || values.dtype() == kComplex128) {
    return errors::InvalidArgument("the histogram '", tag,
                                   "' is of complex numbers: give their real parts or sizes");
  }
  StatusOr<Tensor> doubles = CastTensor(values, kDouble);
  if (!doubles.ok()) {
    return errors::InvalidArgument("the histogram '", tag, "' is of a tensor of ",
                                   DataTypeName(values.dtype()),
                                   ": real numbers or bools were expected");
  }
  MR_RETURN_IF_ERROR(CheckFinite(tag, doubles->flat<double>()));
  pb::Event event;
  event.set_step(step);
  MR_ASSIGN_OR_RETURN(pb::Summary::Value * summary,
                      AddValue({.plugin = "histograms"}, tag, description, &event));
  TensorToProto(Buckets(doubles->flat<double>(), buckets), summary->mutable_tensor());
  return impl_->Write(&event);
}

}  // namespace millrace
