// SPDX-License-Identifier: Apache-2.0
// Statistics of channels for images with channels last: of chunks, then put together.
#ifndef KERNELS_GPU_LOOPS_BATCH_NORM_CHUNKS_H_
#define KERNELS_GPU_LOOPS_BATCH_NORM_CHUNKS_H_

#include "kernels/gpu/loops/batch_norm_statistics.h"
#include "kernels/gpu/loops/elementwise_loops.h"
#include "kernels/gpu/loops/reduce_loops.h"

namespace millrace::gpu {

struct BatchNormScratch {
  float *first, *second;         // [chunks, channels]
  float *shift, *slope, *scale;  // [channels]
  int64_t chunks;

  MR_HD static int64_t Floats(int64_t chunks, int64_t channels) {
    return (2 * chunks + 3) * channels;
  }
};
inline BatchNormScratch MakeScratch(const BatchNormParams& p) {
  float* at = static_cast<float*>(p.scratch);
  const int64_t parts = p.chunks * p.channels;
  return {at,
          at + parts,
          at + 2 * parts,
          at + 2 * parts + p.channels,
          at + 2 * parts + 2 * p.channels,
          p.chunks};
}

// Two numbers of every chunk: f(channel, first row, end) gives them.
struct ChunkSums {
  float first, second;
};
template <typename F>
struct OverChunks {
  F sums_of;
  int64_t channels;
  ChunkRange range;
  BatchNormScratch scratch;
  MR_HD void operator()(int64_t i) const {
    const int64_t chunk = i / channels;
    const ChunkSums sums =
        sums_of(i - chunk * channels, range.begin(chunk), range.begin(chunk + 1));
    scratch.first[i] = sums.first;
    scratch.second[i] = sums.second;
  }
};

// Puts the first `chunks` of a channel together; J.Add takes them in their order.
template <typename J>
struct JoinChunks {
  BatchNormParams p;
  int64_t chunks;
  ChunkRange range;
  BatchNormScratch scratch;
  MR_HD void operator()(int64_t c) const {
    J joined;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t at = chunk * p.channels + c;
      joined.Add(range.begin(chunk + 1) - range.begin(chunk), scratch.first[at],
                 scratch.second[at]);
    }
    joined.Finish(p, c, scratch);
  }
};

// The mean of a chunk and the sum of the squares of what differs from it.
template <typename T>
struct ChunkMoments {
  const T* x;
  int64_t channels;
  MR_HD ChunkSums operator()(int64_t c, int64_t begin, int64_t end) const {
    float sum = 0, squares = 0;
    for (int64_t row = begin; row < end; ++row) sum += Widen(x[row * channels + c]);
    const float mean = end > begin ? sum / static_cast<float>(end - begin) : 0.0f;
    for (int64_t row = begin; row < end; ++row) {
      const float d = Widen(x[row * channels + c]) - mean;
      squares += d * d;
    }
    return {mean, squares};
  }
};

// Puts moments together (Chan, Golub and LeVeque, 1979).
struct JoinedMoments {
  double count = 0, mean = 0, squares = 0;
  MR_HD void Add(int64_t n, float chunk_mean, float chunk_squares) {
    const auto more = static_cast<double>(n);
    if (n == 0) return;
    const double d = static_cast<double>(chunk_mean) - mean;
    squares += static_cast<double>(chunk_squares) + d * d * count * more / (count + more);
    mean += d * more / (count + more);
    count += more;
  }
  MR_HD void Finish(const BatchNormParams& p, int64_t c, const BatchNormScratch& scratch) const {
    // The statistics of no images are NaN.
    const double found = count > 0 ? mean : squares / count;
    const float used_mean = p.training ? static_cast<float>(found) : p.old_mean[c];
    const float used_variance =
        p.training ? static_cast<float>(squares / count) : p.old_variance[c];
    scratch.shift[c] = used_mean;
    scratch.scale[c] = p.scale[c] / std::sqrt(used_variance + p.epsilon);
    KeepStatistics(p, c, p.outer, used_mean, used_variance);
  }
};

// Of a chunk: the sum of the gradients, and of their products with centred values.
template <typename T>
struct ChunkProducts {
  const T *x, *dy;
  const float* means;
  int64_t channels;
  MR_HD ChunkSums operator()(int64_t c, int64_t begin, int64_t end) const {
    const float mean = means[c];
    float sum = 0, product = 0;
    for (int64_t row = begin; row < end; ++row) {
      const float g = Widen(dy[row * channels + c]);
      sum += g;
      product += g * (Widen(x[row * channels + c]) - mean);
    }
    return {sum, product};
  }
};

struct JoinedProducts {
  double sum = 0, product = 0;
  MR_HD void Add(int64_t, float chunk_sum, float chunk_product) {
    sum += static_cast<double>(chunk_sum);
    product += static_cast<double>(chunk_product);
  }
  MR_HD void Finish(const BatchNormParams& p, int64_t c, const BatchNormScratch& scratch) const {
    const ChannelGradient made(p, c, p.outer, sum, product);
    p.d_scale[c] = made.d_scale;
    p.d_offset[c] = made.d_offset;
    scratch.shift[c] = made.shift;
    scratch.slope[c] = made.slope;
    scratch.scale[c] = made.scale;
  }
};

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_BATCH_NORM_CHUNKS_H_
