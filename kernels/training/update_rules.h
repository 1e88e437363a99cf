// The algorithms of optimizers: what one step does to one element of a variable and its slots.
// Kernels of the CPU and of GPUs are made from them; both the host's compiler and nvcc compile
// them.
//
// kSlots says how many variables go with the one that is trained. kScalars names the inputs of the
// op that arrive in h, in this order. Prepare, once in an update, replaces h by what does not
// depend on the element. Step changes the variable v and its slots s, given the gradient g. C is
// the type that is computed in. All functions are pure but for their arguments.
#ifndef KERNELS_TRAINING_UPDATE_RULES_H_
#define KERNELS_TRAINING_UPDATE_RULES_H_

#include <cmath>
#include <type_traits>

#include "kernels/common/host_device.h"

namespace millrace::rules {

// Attributes of ops that change a rule.
struct UpdateFlags {
  bool use_nesterov = false, update_slots = true, multiply_linear_by_lr = false;
};

// How many scalar inputs a rule has.
template <typename Rule>
inline constexpr int kNumScalars = sizeof(Rule::kScalars) / sizeof(Rule::kScalars[0]);

// Whether the last of them is the number of the step, an int64.
template <typename Rule>
inline constexpr bool kCountsSteps = false;

// For rules whose scalars are used as they come.
struct NothingToPrepare {
  template <typename C>
  static MR_HD void Prepare(C*) {}
};

struct GradientDescent : NothingToPrepare {
  static constexpr int kSlots = 0;
  static constexpr const char* kScalars[] = {"alpha"};
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C*, C g) {
    v -= h[0] * g;
  }
};

struct Momentum : NothingToPrepare {
  static constexpr int kSlots = 1;
  static constexpr const char* kScalars[] = {"lr", "momentum"};
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags flags, C& v, C* s, C g) {
    s[0] = s[0] * h[1] + g;
    v -= flags.use_nesterov ? g * h[0] + s[0] * h[1] * h[0] : h[0] * s[0];
  }
};

struct KerasMomentum : NothingToPrepare {
  static constexpr int kSlots = 1;
  static constexpr const char* kScalars[] = {"lr", "momentum"};
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags flags, C& v, C* s, C g) {
    s[0] = s[0] * h[1] - g * h[0];
    v += flags.use_nesterov ? s[0] * h[1] - g * h[0] : s[0];
  }
};

struct Adagrad : NothingToPrepare {
  static constexpr int kSlots = 1;
  static constexpr const char* kScalars[] = {"lr"};
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags flags, C& v, C* s, C g) {
    if (flags.update_slots) s[0] += g * g;
    v -= h[0] * g / std::sqrt(s[0]);
  }
};

struct AdagradV2 : NothingToPrepare {
  static constexpr int kSlots = 1;
  static constexpr const char* kScalars[] = {"lr", "epsilon"};
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags flags, C& v, C* s, C g) {
    if (flags.update_slots) s[0] += g * g;
    v -= h[0] * g / (std::sqrt(s[0]) + h[1]);
  }
};

struct Adadelta : NothingToPrepare {
  static constexpr int kSlots = 2;
  static constexpr const char* kScalars[] = {"lr", "rho", "epsilon"};
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C* s, C g) {
    s[0] = s[0] * h[1] + g * g * (C(1) - h[1]);
    const C update = std::sqrt(s[1] + h[2]) / std::sqrt(s[0] + h[2]) * g;
    s[1] = s[1] * h[1] + update * update * (C(1) - h[1]);
    v -= update * h[0];
  }
};

struct RmsProp : NothingToPrepare {
  static constexpr int kSlots = 2;
  static constexpr const char* kScalars[] = {"lr", "rho", "momentum", "epsilon"};
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C* s, C g) {
    s[0] += (g * g - s[0]) * (C(1) - h[1]);
    s[1] = s[1] * h[2] + g * h[0] / std::sqrt(s[0] + h[3]);
    v -= s[1];
  }
};

struct CenteredRmsProp : NothingToPrepare {
  static constexpr int kSlots = 3;  // mg, ms, mom
  static constexpr const char* kScalars[] = {"lr", "rho", "momentum", "epsilon"};
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C* s, C g) {
    s[1] += (g * g - s[1]) * (C(1) - h[1]);
    s[0] += (g - s[0]) * (C(1) - h[1]);
    s[2] = s[2] * h[2] + g * h[0] / std::sqrt(s[1] - s[0] * s[0] + h[3]);
    v -= s[2];
  }
};

// Kingma and Ba, "Adam" (ICLR 2015), in the form before section 2.1 where epsilon is not
// corrected; h[0] becomes the corrected learning rate.
struct Adam {
  static constexpr int kSlots = 2;
  static constexpr const char* kScalars[] = {"lr",      "beta1",       "beta2",
                                             "epsilon", "beta1_power", "beta2_power"};
  template <typename C>
  static MR_HD void Prepare(C* h) {
    h[0] = h[0] * std::sqrt(C(1) - h[5]) / (C(1) - h[4]);
  }
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags flags, C& v, C* s, C g) {
    s[0] += (g - s[0]) * (C(1) - h[1]);
    s[1] += (g * g - s[1]) * (C(1) - h[2]);
    const C m = flags.use_nesterov ? g * (C(1) - h[1]) + h[1] * s[0] : s[0];
    v -= m * h[0] / (std::sqrt(s[1]) + h[3]);
  }
};

struct AdamWithAmsgrad {
  static constexpr int kSlots = 3;  // m, v, vhat
  static constexpr const char* kScalars[] = {"lr",      "beta1",       "beta2",
                                             "epsilon", "beta1_power", "beta2_power"};
  template <typename C>
  static MR_HD void Prepare(C* h) {
    Adam::Prepare(h);
  }
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C* s, C g) {
    s[0] += (g - s[0]) * (C(1) - h[1]);
    s[1] += (g * g - s[1]) * (C(1) - h[2]);
    s[2] = Larger(s[2], s[1]);
    v -= s[0] * h[0] / (std::sqrt(s[2]) + h[3]);
  }
};

struct AdaMax {
  static constexpr int kSlots = 2;
  static constexpr const char* kScalars[] = {"lr", "beta1", "beta2", "epsilon", "beta1_power"};
  template <typename C>
  static MR_HD void Prepare(C* h) {
    h[0] = h[0] / (C(1) - h[4]);
  }
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C* s, C g) {
    s[0] += (g - s[0]) * (C(1) - h[1]);
    s[1] = Larger(h[2] * s[1], std::fabs(g));
    v -= h[0] * s[0] / (s[1] + h[3]);
  }
};

// McMahan et al., "Ad Click Prediction: a View from the Trenches" (KDD 2013).
template <bool kShrinks>
struct FtrlBase : NothingToPrepare {
  static constexpr int kSlots = 2;  // accum, linear
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags flags, C& v, C* s, C g) {
    const C lr = h[0], l1 = h[1], l2 = h[2], power = -h[3];
    const C accum = s[0] + g * g;
    const C grown = std::pow(accum, power), before = std::pow(s[0], power);
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
struct Ftrl : FtrlBase<false> {
  static constexpr const char* kScalars[] = {"lr", "l1", "l2", "lr_power"};
};
struct FtrlV2 : FtrlBase<true> {
  static constexpr const char* kScalars[] = {"lr", "l1", "l2", "lr_power", "l2_shrinkage"};
};

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

// Whether there are ops that update the rows that an input `indices` names by this rule.
template <typename Rule>
inline constexpr bool kUpdatesRows =
    !std::is_same_v<Rule, GradientDescent> && !std::is_same_v<Rule, Adam> &&
    !std::is_same_v<Rule, AdamWithAmsgrad> && !std::is_same_v<Rule, AdaMax> &&
    !std::is_same_v<Rule, FtrlV2>;

}  // namespace millrace::rules

#endif  // KERNELS_TRAINING_UPDATE_RULES_H_
