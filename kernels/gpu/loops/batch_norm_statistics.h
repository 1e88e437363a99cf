// SPDX-License-Identifier: Apache-2.0
// What batch normalization makes of the sums over a channel, however they were found.
#ifndef KERNELS_GPU_LOOPS_BATCH_NORM_STATISTICS_H_
#define KERNELS_GPU_LOOPS_BATCH_NORM_STATISTICS_H_

#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {

// Writes the statistics of channel c, of n elements.
MR_HD inline void KeepStatistics(const BatchNormParams& p, int64_t c, int64_t n, float mean,
                                 float variance) {
  const auto all = static_cast<float>(n);
  const float unbiased = variance * (p.training && n > 1 ? all / (all - 1) : 1.0f);
  const bool mixes = p.training && p.factor != 1.0f;
  const float keep = 1.0f - p.factor;
  p.mean[c] = mixes ? keep * p.old_mean[c] + p.factor * mean : mean;
  p.variance[c] = mixes ? keep * p.old_variance[c] + p.factor * unbiased : unbiased;
  p.batch_mean[c] = mean;
  p.batch_variance[c] = variance;
}

// dx = (dy - shift - (x - mean) * slope) * scale.
struct ChannelGradient {
  float shift, slope, scale;
  float d_scale, d_offset;

  // From the sums of a channel's gradients, and of their products with centred values.
  MR_HD ChannelGradient(const BatchNormParams& p, int64_t c, int64_t n, double sum,
                        double product) {
    const double count = static_cast<double>(n > 1 ? n : 1);
    const double spread = static_cast<double>(p.old_variance[c]) + static_cast<double>(p.epsilon);
    const double inverse = 1 / std::sqrt(spread);
    // Statistics that were given do not depend on x.
    shift = p.training ? static_cast<float>(sum / count) : 0.0f;
    slope = p.training ? static_cast<float>(product / count / spread) : 0.0f;
    scale = static_cast<float>(static_cast<double>(p.scale[c]) * inverse);
    d_scale = static_cast<float>(product * inverse);
    d_offset = static_cast<float>(sum);
  }
};

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_BATCH_NORM_STATISTICS_H_
