// SPDX-License-Identifier: Apache-2.0
// The algorithms of optimizers: what one step does to one element of a variable and its slots.
// Kernels of the CPU and of GPUs are made from them; both the host's compiler and nvcc compile
// them. What a rule has: update_rule.h.
#ifndef KERNELS_TRAINING_UPDATE_RULES_H_
#define KERNELS_TRAINING_UPDATE_RULES_H_

#include <cmath>
#include <type_traits>

#include "kernels/training/proximal_rules.h"
#include "kernels/training/update_rule.h"

namespace millrace::rules {

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

// Whether there are ops that update the rows that an input `indices` names by this rule.
template <typename Rule>
inline constexpr bool kUpdatesRows =
    !std::is_same_v<Rule, GradientDescent> && !std::is_same_v<Rule, Adam> &&
    !std::is_same_v<Rule, AdamWithAmsgrad> && !std::is_same_v<Rule, AdaMax> &&
    !std::is_same_v<Rule, FtrlV2>;

}  // namespace millrace::rules

#endif  // KERNELS_TRAINING_UPDATE_RULES_H_
