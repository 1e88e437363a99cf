// Optimizers: a variable and its slots in one pass. Hyperparameters lie where the variable does.
#ifndef KERNELS_GPU_UPDATE_LOOPS_H_
#define KERNELS_GPU_UPDATE_LOOPS_H_

#include "kernels/gpu/loops.h"

namespace millrace::gpu {

struct UpdateFlags {
  bool use_nesterov, update_slots;
};

// kSlots and kScalars say how many there are. Prepare replaces h by what does not depend on the
// element; Step changes the variable v and its slots s, given the gradient g.
struct GradientDescentRule {
  static constexpr int kSlots = 0, kScalars = 1;  // alpha
  template <typename C>
  static MR_HD void Prepare(C*) {}
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C*, C g) {
    v -= h[0] * g;
  }
};
struct MomentumRule {
  static constexpr int kSlots = 1, kScalars = 2;  // lr, momentum
  template <typename C>
  static MR_HD void Prepare(C*) {}
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags flags, C& v, C* s, C g) {
    s[0] = s[0] * h[1] + g;
    v -= flags.use_nesterov ? g * h[0] + s[0] * h[1] * h[0] : h[0] * s[0];
  }
};
struct KerasMomentumRule {
  static constexpr int kSlots = 1, kScalars = 2;  // lr, momentum
  template <typename C>
  static MR_HD void Prepare(C*) {}
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags flags, C& v, C* s, C g) {
    s[0] = s[0] * h[1] - g * h[0];
    v += flags.use_nesterov ? s[0] * h[1] - g * h[0] : s[0];
  }
};
struct AdagradRule {
  static constexpr int kSlots = 1, kScalars = 1;  // lr
  template <typename C>
  static MR_HD void Prepare(C*) {}
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags flags, C& v, C* s, C g) {
    if (flags.update_slots) s[0] += g * g;
    v -= h[0] * g / std::sqrt(s[0]);
  }
};
struct AdagradV2Rule {
  static constexpr int kSlots = 1, kScalars = 2;  // lr, epsilon
  template <typename C>
  static MR_HD void Prepare(C*) {}
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags flags, C& v, C* s, C g) {
    if (flags.update_slots) s[0] += g * g;
    v -= h[0] * g / (std::sqrt(s[0]) + h[1]);
  }
};
struct AdadeltaRule {
  static constexpr int kSlots = 2, kScalars = 3;  // lr, rho, epsilon
  template <typename C>
  static MR_HD void Prepare(C*) {}
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C* s, C g) {
    s[0] = s[0] * h[1] + g * g * (C(1) - h[1]);
    const C update = std::sqrt(s[1] + h[2]) / std::sqrt(s[0] + h[2]) * g;
    s[1] = s[1] * h[1] + update * update * (C(1) - h[1]);
    v -= update * h[0];
  }
};
struct RmsPropRule {
  static constexpr int kSlots = 2, kScalars = 4;  // lr, rho, momentum, epsilon
  template <typename C>
  static MR_HD void Prepare(C*) {}
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C* s, C g) {
    s[0] += (g * g - s[0]) * (C(1) - h[1]);
    s[1] = s[1] * h[2] + g * h[0] / std::sqrt(s[0] + h[3]);
    v -= s[1];
  }
};
struct CenteredRmsPropRule {
  static constexpr int kSlots = 3, kScalars = 4;  // lr, rho, momentum, epsilon
  template <typename C>
  static MR_HD void Prepare(C*) {}
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C* s, C g) {
    s[1] += (g * g - s[1]) * (C(1) - h[1]);
    s[0] += (g - s[0]) * (C(1) - h[1]);
    s[2] = s[2] * h[2] + g * h[0] / std::sqrt(s[1] - s[0] * s[0] + h[3]);
    v -= s[2];
  }
};
// Kingma and Ba, "Adam" (ICLR 2015); h[0] becomes the corrected learning rate.
struct AdamRule {
  static constexpr int kSlots = 2, kScalars = 6;  // lr, beta1, beta2, epsilon, and two powers
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
struct AdaMaxRule {
  static constexpr int kSlots = 2, kScalars = 5;  // lr, beta1, beta2, epsilon, beta1's power
  template <typename C>
  static MR_HD void Prepare(C* h) {
    h[0] = h[0] / (C(1) - h[4]);
  }
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C* s, C g) {
    s[0] += (g - s[0]) * (C(1) - h[1]);
    s[1] = Larger(h[2] * s[1], static_cast<C>(std::fabs(g)));
    v -= h[0] * s[0] / (s[1] + h[3]);
  }
};

template <typename Rule, typename T>
struct UpdateEach {
  T* var;
  T* slots[Rule::kSlots + 1];
  const T* scalars[Rule::kScalars];
  const T* gradient;
  UpdateFlags flags;
  MR_HD void operator()(int64_t i) const {
    using C = ComputeType<T>;
    C h[Rule::kScalars];
    for (int k = 0; k < Rule::kScalars; ++k) h[k] = Widen(scalars[k][0]);
    Rule::Prepare(h);
    C value = Widen(var[i]);
    C s[Rule::kSlots + 1] = {};
    for (int k = 0; k < Rule::kSlots; ++k) s[k] = Widen(slots[k][i]);
    Rule::Step(h, flags, value, s, Widen(gradient[i]));
    for (int k = 0; k < Rule::kSlots; ++k) slots[k][i] = Narrow<T>(s[k]);
    var[i] = Narrow<T>(value);
  }
};

template <typename Launcher, typename Rule>
Outcome UpdateBy(Queue queue, const UpdateParams& p) {
  return Dispatch(Floats(), p.type, [&]<typename T>() {
    UpdateEach<Rule, T> each{static_cast<T*>(p.var),
                             {},
                             {},
                             static_cast<const T*>(p.gradient),
                             {p.use_nesterov, p.update_slots}};
    for (int k = 0; k < Rule::kSlots; ++k) each.slots[k] = static_cast<T*>(p.slots[k]);
    for (int k = 0; k < Rule::kScalars; ++k) each.scalars[k] = static_cast<const T*>(p.scalars[k]);
    return Launcher(queue).ForEach(p.n, each);
  });
}

template <typename Launcher>
Outcome RunUpdate(Queue queue, const UpdateParams& p) {
  switch (p.rule) {
    case UpdateRule::kGradientDescent:
      return UpdateBy<Launcher, GradientDescentRule>(queue, p);
    case UpdateRule::kMomentum:
      return UpdateBy<Launcher, MomentumRule>(queue, p);
    case UpdateRule::kKerasMomentum:
      return UpdateBy<Launcher, KerasMomentumRule>(queue, p);
    case UpdateRule::kAdagrad:
      return UpdateBy<Launcher, AdagradRule>(queue, p);
    case UpdateRule::kAdagradV2:
      return UpdateBy<Launcher, AdagradV2Rule>(queue, p);
    case UpdateRule::kAdadelta:
      return UpdateBy<Launcher, AdadeltaRule>(queue, p);
    case UpdateRule::kRmsProp:
      return UpdateBy<Launcher, RmsPropRule>(queue, p);
    case UpdateRule::kCenteredRmsProp:
      return UpdateBy<Launcher, CenteredRmsPropRule>(queue, p);
    case UpdateRule::kAdam:
      return UpdateBy<Launcher, AdamRule>(queue, p);
    case UpdateRule::kAdaMax:
      return UpdateBy<Launcher, AdaMaxRule>(queue, p);
  }
  return kNoLoop;
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_UPDATE_LOOPS_H_
