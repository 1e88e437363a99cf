// SPDX-License-Identifier: Apache-2.0
// Algorithms that keep variables sparse, as update_rule.h says: Ftrl and proximal steps.
#ifndef KERNELS_TRAINING_PROXIMAL_RULES_H_
#define KERNELS_TRAINING_PROXIMAL_RULES_H_

#include <cmath>

#include "kernels/training/update_rule.h"

namespace millrace::rules {

// McMahan et al., "Ad Click Prediction: a View from the Trenches" (KDD 2013).
template <bool kShrinks, bool kRoot>
struct FtrlBase : NothingToPrepare {
  static constexpr int kSlots = 2;  // accum, linear
  template <typename C>
  static MR_HD bool TakesRoot(const C* h) {
    return h[3] == C(-0.5);
  }
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags flags, C& v, C* s, C g) {
    const C lr = h[0], l1 = h[1], l2 = h[2], power = -h[3];
    const C accum = s[0] + g * g;
    const C grown = kRoot ? std::sqrt(accum) : std::pow(accum, power);
    const C before = kRoot ? std::sqrt(s[0]) : std::pow(s[0], power);
    C pull = g;
    if constexpr (kShrinks) pull += C(2) * h[4] * v;
    C quadratic, threshold;
    if (flags.multiply_linear_by_lr) {
      s[1] += pull * lr - (grown - before) * v;
      quadratic = grown + C(2) * l2 * lr;
      threshold = l1 * lr;
    } else {
      s[1] += pull - (grown - before) / lr * v;
      quadratic = grown / lr + C(2) * l2;
      threshold = l1;
    }
    v = std::fabs(s[1]) > threshold ? (std::copysign(threshold, s[1]) - s[1]) / quadratic : C(0);
    s[0] = accum;
  }
};
// `WithRoot` is the same where the power is -1/2, as it is if nobody says another.
template <bool kRoot>
struct FtrlOf : FtrlBase<false, kRoot> {
  static constexpr const char* kScalars[] = {"lr", "l1", "l2", "lr_power"};
  using WithRoot = FtrlOf<true>;
};
template <bool kRoot>
struct FtrlV2Of : FtrlBase<true, kRoot> {
  static constexpr const char* kScalars[] = {"lr", "l1", "l2", "lr_power", "l2_shrinkage"};
  using WithRoot = FtrlV2Of<true>;
};
using Ftrl = FtrlOf<false>;
using FtrlV2 = FtrlV2Of<false>;

// Duchi, Hazan and Singer, "Adaptive Subgradient Methods" (JMLR 2011): steps along the sum of
// all gradients, kept sparse by l1.
struct AdagradDA : NothingToPrepare {
  static constexpr int kSlots = 2;  // sums of the gradients and of their squares
  static constexpr const char* kScalars[] = {"lr", "l1", "l2", "global_step"};
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C* s, C g) {
    s[0] += g;
    s[1] += g * g;
    const C scale = h[2] * h[3] * h[0] + std::sqrt(s[1]);
    const C pull = h[1] > C(0) ? Larger(std::fabs(s[0]) - h[1] * h[3], C(0)) : std::fabs(s[0]);
    v = -std::copysign(h[0] * pull, s[0]) / scale;
  }
};

// Duchi and Singer, "Efficient Learning using Forward-Backward Splitting" (NIPS 2009): a step,
// then towards zero.
template <typename C>
MR_HD C Shrink(C v, C lr, C l1, C l2) {
  const C kept = l1 > C(0) ? std::copysign(Larger(std::fabs(v) - lr * l1, C(0)), v) : v;
  return kept / (C(1) + l2 * lr);
}
struct ProximalGradientDescent : NothingToPrepare {
  static constexpr int kSlots = 0;
  static constexpr const char* kScalars[] = {"alpha", "l1", "l2"};
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C*, C g) {
    v = Shrink(v - h[0] * g, h[0], h[1], h[2]);
  }
};
struct ProximalAdagrad : NothingToPrepare {
  static constexpr int kSlots = 1;
  static constexpr const char* kScalars[] = {"lr", "l1", "l2"};
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C* s, C g) {
    s[0] += g * g;
    const C lr = h[0] / std::sqrt(s[0]);
    v = Shrink(v - lr * g, lr, h[1], h[2]);
  }
};

template <>
inline constexpr bool kCountsSteps<AdagradDA> = true;

}  // namespace millrace::rules

#endif  // KERNELS_TRAINING_PROXIMAL_RULES_H_
