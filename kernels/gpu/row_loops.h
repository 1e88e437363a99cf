// Rows that a team of threads works on together: softmax and what is made of it, and channels
// of batch normalization.
#ifndef KERNELS_GPU_ROW_LOOPS_H_
#define KERNELS_GPU_ROW_LOOPS_H_

#include "kernels/gpu/elementwise_loops.h"
#include "kernels/gpu/loops.h"
#include "kernels/gpu/reduce_loops.h"

namespace millrace::gpu {

struct PlainMax {
  template <typename A>
  MR_HD A operator()(A a, A b) const {
    return a < b ? b : a;
  }
};

template <typename T>
struct SoftmaxRow {
  using C = ComputeType<T>;
  const T* in;
  T* out;
  int64_t n;
  bool log;
  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t row) const {
    const T* x = in + row * n;
    T* y = out + row * n;
    constexpr C kLeast = -std::numeric_limits<C>::infinity();
    C max = kLeast;
    for (int64_t j = team.rank(); j < n; j += team.size()) max = PlainMax()(max, Widen(x[j]));
    max = team.Reduce(max, kLeast, PlainMax());
    C sum = 0;
    for (int64_t j = team.rank(); j < n; j += team.size()) sum += std::exp(Widen(x[j]) - max);
    sum = team.Reduce(sum, C(0), SumCombine());
    const C log_sum = log ? std::log(sum) : C(0), scale = C(1) / sum;
    for (int64_t j = team.rank(); j < n; j += team.size()) {
      const C shifted = Widen(x[j]) - max;
      y[j] = Narrow<T>(log ? shifted - log_sum : std::exp(shifted) * scale);
    }
  }
};

template <typename Launcher>
Outcome RunSoftmax(Queue queue, const SoftmaxParams& p) {
  return Dispatch(Floats(), p.type, [&]<typename T>() {
    return Launcher(queue).ForTeams(
        p.rows, p.n,
        SoftmaxRow<T>{static_cast<const T*>(p.in), static_cast<T*>(p.out), p.n, p.log});
  });
}

// Labels are probabilities.
template <typename T>
struct CrossEntropyRow {
  using C = ComputeType<T>;
  const T *logits, *labels;
  int64_t x_row, x_column, y_row, y_column;
  T *loss, *backprop;
  int64_t n;

  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t row) const {
    const T* x = logits + row * x_row;
    const T* y = labels + row * y_row;
    constexpr C kLeast = -std::numeric_limits<C>::infinity();
    C max = kLeast;
    for (int64_t j = team.rank(); j < n; j += team.size()) {
      max = PlainMax()(max, Widen(x[j * x_column]));
    }
    max = team.Reduce(max, kLeast, PlainMax());
    C sum = 0;
    for (int64_t j = team.rank(); j < n; j += team.size()) {
      sum += std::exp(Widen(x[j * x_column]) - max);
    }
    sum = team.Reduce(sum, C(0), SumCombine());
    const C log_sum = std::log(sum), scale = C(1) / sum;
    C total = 0;
    for (int64_t j = team.rank(); j < n; j += team.size()) {
      const C shifted = Widen(x[j * x_column]) - max, label = Widen(y[j * y_column]);
      // A label of 0 adds nothing even where the logit is -infinity.
      if (label != C(0)) total += label * (log_sum - shifted);
      backprop[row * n + j] = Narrow<T>(std::exp(shifted) * scale - label);
    }
    total = team.Reduce(total, C(0), SumCombine());
    if (team.rank() == 0) loss[row] = Narrow<T>(total);
  }
};

// Labels are numbers of classes.
template <typename T, typename I>
struct SparseCrossEntropyRow {
  using C = ComputeType<T>;
  const T* logits;
  const I* labels;
  T *loss, *backprop;
  int64_t n;

  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t row) const {
    const T* x = logits + row * n;
    const auto label = static_cast<int64_t>(labels[row]);
    const bool valid = label >= 0 && label < n;
    constexpr C kLeast = -std::numeric_limits<C>::infinity();
    constexpr C kNan = std::numeric_limits<C>::quiet_NaN();
    C max = kLeast;
    for (int64_t j = team.rank(); j < n; j += team.size()) max = PlainMax()(max, Widen(x[j]));
    max = team.Reduce(max, kLeast, PlainMax());
    C sum = 0;
    for (int64_t j = team.rank(); j < n; j += team.size()) sum += std::exp(Widen(x[j]) - max);
    sum = team.Reduce(sum, C(0), SumCombine());
    const C scale = C(1) / sum;
    // Before anything is written: backprop may be the logits.
    const C picked = valid ? Widen(x[label]) - max : kNan;
    if (team.rank() == 0) loss[row] = Narrow<T>(std::log(sum) - picked);
    for (int64_t j = team.rank(); j < n; j += team.size()) {
      const C p = std::exp(Widen(x[j]) - max) * scale;
      backprop[row * n + j] = Narrow<T>(valid ? (j == label ? p - C(1) : p) : kNan);
    }
  }
};

template <typename Launcher>
Outcome RunCrossEntropy(Queue queue, const CrossEntropyParams& p) {
  return Dispatch(Floats(), p.type, [&]<typename T>() {
    const Launcher launcher(queue);
    const T* logits = static_cast<const T*>(p.logits);
    T* loss = static_cast<T*>(p.loss);
    T* backprop = static_cast<T*>(p.backprop);
    if (p.label_type == DataType::kInvalid) {
      return launcher.ForTeams(
          p.rows, p.n,
          CrossEntropyRow<T>{logits, static_cast<const T*>(p.labels), p.x_row, p.x_column, p.y_row,
                             p.y_column, loss, backprop, p.n});
    }
    return Dispatch(Types<int32_t, int64_t>(), p.label_type, [&]<typename I>() {
      return launcher.ForTeams(p.rows, p.n,
                               SparseCrossEntropyRow<T, I>{logits, static_cast<const I*>(p.labels),
                                                           loss, backprop, p.n});
    });
  });
}

template <typename I>
struct InTopKRow {
  const float* predictions;
  const I* targets;
  bool* out;
  int64_t classes, k;
  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t row) const {
    const float* x = predictions + row * classes;
    const auto target = static_cast<int64_t>(targets[row]);
    const bool known = target >= 0 && target < classes;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float value = known ? x[target] : kInfinity;
    int64_t larger = std::fabs(value) < kInfinity ? 0 : classes + k;  // as many are not enough
    larger = team.rank() == 0 ? larger : 0;
    for (int64_t j = team.rank(); j < classes; j += team.size()) {
      larger += !(std::fabs(x[j]) < kInfinity) ? classes + k : (x[j] > value ? 1 : 0);
    }
    larger = team.Reduce(larger, int64_t{0}, SumCombine());
    if (team.rank() == 0) out[row] = larger < k;
  }
};

template <typename Launcher>
Outcome RunInTopK(Queue queue, const InTopKParams& p) {
  return Dispatch(Types<int32_t, int64_t>(), p.index_type, [&]<typename I>() {
    return Launcher(queue).ForTeams(
        p.rows, p.classes,
        InTopKRow<I>{p.predictions, static_cast<const I*>(p.targets), p.out, p.classes, p.k});
  });
}

// --- Batch normalization ---------------------------------------------------------------------

// Element i of a channel of images [outer, channels, inner].
struct ChannelView {
  int64_t outer, channels, inner;
  MR_HD int64_t count() const { return outer * inner; }
  MR_HD int64_t At(int64_t channel, int64_t i) const {
    if (inner == 1) return i * channels + channel;
    const int64_t o = i / inner;
    return (o * channels + channel) * inner + (i - o * inner);
  }
};

template <typename T>
struct BatchNormChannel {
  ChannelView view;
  BatchNormParams p;
  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t c) const {
    const T* x = static_cast<const T*>(p.x);
    T* y = static_cast<T*>(p.y);
    const int64_t n = view.count();
    float mean, variance;
    if (p.training) {
      const double count = static_cast<double>(n > 1 ? n : 1);
      double sum = 0;
      for (int64_t i = team.rank(); i < n; i += team.size()) {
        sum += static_cast<double>(Widen(x[view.At(c, i)]));
      }
      mean = static_cast<float>(team.Reduce(sum, 0.0, SumCombine()) / count);
      double squares = 0;
      for (int64_t i = team.rank(); i < n; i += team.size()) {
        const float d = Widen(x[view.At(c, i)]) - mean;
        squares += static_cast<double>(d * d);
      }
      variance = static_cast<float>(team.Reduce(squares, 0.0, SumCombine()) / count);
    } else {
      mean = p.old_mean[c];
      variance = p.old_variance[c];
    }
    const float scale = p.scale[c] / std::sqrt(variance + p.epsilon), offset = p.offset[c];
    for (int64_t i = team.rank(); i < n; i += team.size()) {
      const int64_t at = view.At(c, i);
      y[at] = Narrow<T>((Widen(x[at]) - mean) * scale + offset);
    }
    if (team.rank() != 0) return;
    const auto all = static_cast<float>(n);
    const float unbiased = variance * (p.training && n > 1 ? all / (all - 1) : 1.0f);
    const bool mixes = p.training && p.factor != 1.0f;
    p.mean[c] = mixes ? (1.0f - p.factor) * p.old_mean[c] + p.factor * mean : mean;
    p.variance[c] = mixes ? (1.0f - p.factor) * p.old_variance[c] + p.factor * unbiased : unbiased;
    p.batch_mean[c] = mean;
    p.batch_variance[c] = variance;
  }
};

template <typename T>
struct BatchNormGradChannel {
  ChannelView view;
  BatchNormParams p;
  template <typename Team>
  MR_HD void operator()(const Team& team, int64_t c) const {
    const T* x = static_cast<const T*>(p.x);
    const T* dy = static_cast<const T*>(p.dy);
    T* dx = static_cast<T*>(p.dx);
    const int64_t n = view.count();
    const float mean = p.old_mean[c];
    double sum = 0, product = 0;
    for (int64_t i = team.rank(); i < n; i += team.size()) {
      const int64_t at = view.At(c, i);
      const float g = Widen(dy[at]);
      sum += static_cast<double>(g);
      product += static_cast<double>(g * (Widen(x[at]) - mean));
    }
    sum = team.Reduce(sum, 0.0, SumCombine());
    product = team.Reduce(product, 0.0, SumCombine());
    const double count = static_cast<double>(n > 1 ? n : 1);
    const double spread = static_cast<double>(p.old_variance[c]) + static_cast<double>(p.epsilon);
    const double inverse = 1 / std::sqrt(spread);
    // Statistics that were given do not depend on x.
    const float shift = p.training ? static_cast<float>(sum / count) : 0.0f;
    const float slope = p.training ? static_cast<float>(product / count / spread) : 0.0f;
    const auto scale = static_cast<float>(static_cast<double>(p.scale[c]) * inverse);
    for (int64_t i = team.rank(); i < n; i += team.size()) {
      const int64_t at = view.At(c, i);
      const float centred = Widen(x[at]) - mean;
      dx[at] = Narrow<T>((Widen(dy[at]) - shift - centred * slope) * scale);
    }
    if (team.rank() != 0) return;
    p.d_scale[c] = static_cast<float>(product * inverse);
    p.d_offset[c] = static_cast<float>(sum);
  }
};

// --- With channels last ------------------------------------------------------------------------
// Neighbouring threads take neighbouring channels. Each takes a chunk of its channel's elements;
// one thread for each channel puts the chunks together; then come the elements, in groups.

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

// The mean of a chunk and the sum of the squares of what differs from it.
template <typename T>
struct ChunkMoments {
  const T* x;
  int64_t channels;
  ChunkRange range;
  BatchNormScratch scratch;
  MR_HD void operator()(int64_t i) const {
    const int64_t chunk = i / channels, c = i - chunk * channels;
    const int64_t begin = range.begin(chunk), end = range.begin(chunk + 1);
    float sum = 0, squares = 0;
    for (int64_t row = begin; row < end; ++row) sum += Widen(x[row * channels + c]);
    const float mean = end > begin ? sum / static_cast<float>(end - begin) : 0.0f;
    for (int64_t row = begin; row < end; ++row) {
      const float d = Widen(x[row * channels + c]) - mean;
      squares += d * d;
    }
    scratch.first[i] = mean;
    scratch.second[i] = squares;
  }
};

// Puts moments together (Chan, Golub and LeVeque, 1979).
struct JoinMoments {
  BatchNormParams p;
  ChunkRange range;
  BatchNormScratch scratch;
  MR_HD void operator()(int64_t c) const {
    double count = 0, mean = 0, squares = 0;
    for (int64_t chunk = 0; p.training && chunk < scratch.chunks; ++chunk) {
      const auto more = static_cast<double>(range.begin(chunk + 1) - range.begin(chunk));
      if (more == 0) continue;
      const double d = static_cast<double>(scratch.first[chunk * p.channels + c]) - mean;
      squares += static_cast<double>(scratch.second[chunk * p.channels + c]) +
                 d * d * count * more / (count + more);
      mean += d * more / (count + more);
      count += more;
    }
    const float used_mean = p.training ? static_cast<float>(mean) : p.old_mean[c];
    const float used_variance =
        p.training ? static_cast<float>(squares / (count > 1 ? count : 1)) : p.old_variance[c];
    scratch.shift[c] = used_mean;
    scratch.scale[c] = p.scale[c] / std::sqrt(used_variance + p.epsilon);
    const auto all = static_cast<float>(count);
    const float unbiased = used_variance * (p.training && count > 1 ? all / (all - 1) : 1.0f);
    const bool mixes = p.training && p.factor != 1.0f;
    const float keep = 1.0f - p.factor;
    p.mean[c] = mixes ? keep * p.old_mean[c] + p.factor * used_mean : used_mean;
    p.variance[c] = mixes ? keep * p.old_variance[c] + p.factor * unbiased : unbiased;
    p.batch_mean[c] = used_mean;
    p.batch_variance[c] = used_variance;
  }
};

// Groups of neighbouring channels; f(element, channel) makes each output.
template <typename T>
struct ChannelGroups {
  static constexpr int kGroup = kPackSize<T>;
  int64_t n, channels;
  bool packs;  // addresses are aligned, and groups are of one row
  template <typename F>
  MR_HD void ForEach(int64_t group, F&& f) const {
    const int64_t first = group * kGroup;
    int64_t c = n < (int64_t{1} << 31)
                    ? static_cast<uint32_t>(first) % static_cast<uint32_t>(channels)
                    : first % channels;
    for (int i = 0; i < kGroup && first + i < n; ++i) {
      f(i, first + i, c);
      if (++c == channels) c = 0;
    }
  }
};

template <typename T>
struct NormalizeEach : ChannelGroups<T> {
  BatchNormParams p;
  BatchNormScratch scratch;
  static constexpr int kGroup = ChannelGroups<T>::kGroup;
  MR_HD void operator()(int64_t group) const {
    const T* x = static_cast<const T*>(p.x);
    T* y = static_cast<T*>(p.y);
    const auto one = [&](T value, int64_t c) {
      return Narrow<T>((Widen(value) - scratch.shift[c]) * scratch.scale[c] + p.offset[c]);
    };
    if (!this->packs) {
      this->ForEach(group, [&](int, int64_t at, int64_t c) { y[at] = one(x[at], c); });
      return;
    }
    Pack<T, kGroup> from, to;
    LoadPack(x + group * kGroup, &from);
    this->ForEach(group, [&](int i, int64_t, int64_t c) { to.v[i] = one(from.v[i], c); });
    StorePack(to, y + group * kGroup);
  }
};

// Of a chunk: the sum of the gradients, and of their products with centred values.
template <typename T>
struct ChunkProducts {
  BatchNormParams p;
  ChunkRange range;
  BatchNormScratch scratch;
  MR_HD void operator()(int64_t i) const {
    const T* x = static_cast<const T*>(p.x);
    const T* dy = static_cast<const T*>(p.dy);
    const int64_t chunk = i / p.channels, c = i - chunk * p.channels;
    const float mean = p.old_mean[c];
    float sum = 0, product = 0;
    for (int64_t row = range.begin(chunk); row < range.begin(chunk + 1); ++row) {
      const float g = Widen(dy[row * p.channels + c]);
      sum += g;
      product += g * (Widen(x[row * p.channels + c]) - mean);
    }
    scratch.first[i] = sum;
    scratch.second[i] = product;
  }
};

struct JoinProducts {
  BatchNormParams p;
  int64_t count;
  BatchNormScratch scratch;
  MR_HD void operator()(int64_t c) const {
    double sum = 0, product = 0;
    for (int64_t chunk = 0; chunk < scratch.chunks; ++chunk) {
      sum += static_cast<double>(scratch.first[chunk * p.channels + c]);
      product += static_cast<double>(scratch.second[chunk * p.channels + c]);
    }
    const double all = static_cast<double>(count > 1 ? count : 1);
    const double spread = static_cast<double>(p.old_variance[c]) + static_cast<double>(p.epsilon);
    const double inverse = 1 / std::sqrt(spread);
    p.d_scale[c] = static_cast<float>(product * inverse);
    p.d_offset[c] = static_cast<float>(sum);
    // Statistics that were given do not depend on x.
    scratch.shift[c] = p.training ? static_cast<float>(sum / all) : 0.0f;
    scratch.slope[c] = p.training ? static_cast<float>(product / all / spread) : 0.0f;
    scratch.scale[c] = static_cast<float>(static_cast<double>(p.scale[c]) * inverse);
  }
};

template <typename T>
struct BackwardEach : ChannelGroups<T> {
  BatchNormParams p;
  BatchNormScratch scratch;
  static constexpr int kGroup = ChannelGroups<T>::kGroup;
  MR_HD void operator()(int64_t group) const {
    const T* x = static_cast<const T*>(p.x);
    const T* dy = static_cast<const T*>(p.dy);
    T* dx = static_cast<T*>(p.dx);
    const auto one = [&](T value, T gradient, int64_t c) {
      const float centred = Widen(value) - p.old_mean[c];
      return Narrow<T>((Widen(gradient) - scratch.shift[c] - centred * scratch.slope[c]) *
                       scratch.scale[c]);
    };
    if (!this->packs) {
      this->ForEach(group, [&](int, int64_t at, int64_t c) { dx[at] = one(x[at], dy[at], c); });
      return;
    }
    Pack<T, kGroup> from, gradient, to;
    LoadPack(x + group * kGroup, &from);
    LoadPack(dy + group * kGroup, &gradient);
    this->ForEach(group,
                  [&](int i, int64_t, int64_t c) { to.v[i] = one(from.v[i], gradient.v[i], c); });
    StorePack(to, dx + group * kGroup);
  }
};

template <typename T>
ChannelGroups<T> MakeGroups(const BatchNormParams& p, const void* out) {
  constexpr int kGroup = ChannelGroups<T>::kGroup;
  const int64_t n = p.outer * p.channels;
  return {n, p.channels,
          p.channels % kGroup == 0 && IsAligned(p.x, 16) && IsAligned(out, 16) &&
              (p.dy == nullptr || IsAligned(p.dy, 16))};
}

template <typename Launcher, typename T>
Outcome NormalizeLast(const Launcher& launcher, const BatchNormParams& p) {
  const BatchNormScratch scratch = MakeScratch(p);
  const ChunkRange range{p.outer, p.chunks};
  Outcome outcome = nullptr;
  if (p.training) {
    outcome = launcher.ForEach(p.chunks * p.channels, ChunkMoments<T>{static_cast<const T*>(p.x),
                                                                      p.channels, range, scratch});
    if (outcome != nullptr) return outcome;
  }
  outcome = launcher.ForEach(p.channels, JoinMoments{p, range, scratch});
  if (outcome != nullptr) return outcome;
  const ChannelGroups<T> groups = MakeGroups<T>(p, p.y);
  return launcher.ForEach((groups.n + groups.kGroup - 1) / groups.kGroup,
                          NormalizeEach<T>{groups, p, scratch});
}

template <typename Launcher, typename T>
Outcome BackwardLast(const Launcher& launcher, const BatchNormParams& p) {
  const BatchNormScratch scratch = MakeScratch(p);
  Outcome outcome =
      launcher.ForEach(p.chunks * p.channels, ChunkProducts<T>{p, {p.outer, p.chunks}, scratch});
  if (outcome != nullptr) return outcome;
  outcome = launcher.ForEach(p.channels, JoinProducts{p, p.outer, scratch});
  if (outcome != nullptr) return outcome;
  const ChannelGroups<T> groups = MakeGroups<T>(p, p.dx);
  return launcher.ForEach((groups.n + groups.kGroup - 1) / groups.kGroup,
                          BackwardEach<T>{groups, p, scratch});
}

template <typename Launcher>
Outcome RunBatchNorm(Queue queue, const BatchNormParams& p) {
  const ChannelView view{p.outer, p.channels, p.inner};
  const Launcher launcher(queue);
  return Dispatch(Types<float, Half, BFloat16>(), p.type, [&]<typename T>() {
    if (p.inner == 1) return NormalizeLast<Launcher, T>(launcher, p);
    return launcher.ForTeams(p.channels, view.count(), BatchNormChannel<T>{view, p});
  });
}
template <typename Launcher>
Outcome RunBatchNormGrad(Queue queue, const BatchNormParams& p) {
  const ChannelView view{p.outer, p.channels, p.inner};
  const Launcher launcher(queue);
  return Dispatch(Types<float, Half, BFloat16>(), p.type, [&]<typename T>() {
    if (p.inner == 1) return BackwardLast<Launcher, T>(launcher, p);
    return launcher.ForTeams(p.channels, view.count(), BatchNormGradChannel<T>{view, p});
  });
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_ROW_LOOPS_H_
