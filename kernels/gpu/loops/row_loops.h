// SPDX-License-Identifier: Apache-2.0
// Rows that a team of threads works on together: softmax and what is made of it.
#ifndef KERNELS_GPU_LOOPS_ROW_LOOPS_H_
#define KERNELS_GPU_LOOPS_ROW_LOOPS_H_

#include "kernels/gpu/loops/elementwise_loops.h"
#include "kernels/gpu/loops/loops.h"
#include "kernels/gpu/loops/reduce_loops.h"

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
    if (!valid && team.rank() == 0) loss[row] = Narrow<T>(kNan);
    // backprop may be the logits: of each element whoever writes it alone reads it here.
    for (int64_t j = team.rank(); j < n; j += team.size()) {
      const C shifted = Widen(x[j]) - max;
      const C p = std::exp(shifted) * scale;
      if (valid && j == label) loss[row] = Narrow<T>(std::log(sum) - shifted);
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

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_ROW_LOOPS_H_
