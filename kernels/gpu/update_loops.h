// Optimizers: a variable and its slots in one pass. Hyperparameters lie where the variable does.
#ifndef KERNELS_GPU_UPDATE_LOOPS_H_
#define KERNELS_GPU_UPDATE_LOOPS_H_

#include "kernels/gpu/index_loops.h"
#include "kernels/gpu/loops.h"

namespace millrace::gpu {

struct UpdateFlags {
  bool use_nesterov, update_slots, multiply_linear_by_lr;
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

struct AmsgradRule {
  static constexpr int kSlots = 3, kScalars = 6;  // as Adam
  template <typename C>
  static MR_HD void Prepare(C* h) {
    AdamRule::Prepare(h);
  }
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C* s, C g) {
    s[0] += (g - s[0]) * (C(1) - h[1]);
    s[1] += (g * g - s[1]) * (C(1) - h[2]);
    s[2] = Larger(s[2], s[1]);
    v -= s[0] * h[0] / (std::sqrt(s[2]) + h[3]);
  }
};
// McMahan et al., "Ad Click Prediction: a View from the Trenches" (KDD 2013).
template <bool kShrinks>
struct FtrlRule {
  static constexpr int kSlots = 2;                   // accum, linear
  static constexpr int kScalars = kShrinks ? 5 : 4;  // lr, l1, l2, lr_power, l2_shrinkage
  template <typename C>
  static MR_HD void Prepare(C*) {}
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags flags, C& v, C* s, C g) {
    const C lr = h[0], l1 = h[1], l2 = h[2], power = -h[3];
    const C accum = s[0] + g * g;
    const C grown = std::pow(accum, power), before = std::pow(s[0], power);
    const C pull = kShrinks ? g + C(2) * h[kScalars - 1] * v : g;
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
// Duchi and Singer, "Efficient Learning using Forward-Backward Splitting" (NIPS 2009): a step,
// then towards zero.
template <typename C>
MR_HD C Shrink(C v, C lr, C l1, C l2) {
  const C left = static_cast<C>(std::fabs(v)) - lr * l1;
  const C kept = l1 > C(0) ? static_cast<C>(std::copysign(Larger(left, C(0)), v)) : v;
  return kept / (C(1) + l2 * lr);
}
struct ProximalGradientDescentRule {
  static constexpr int kSlots = 0, kScalars = 3;  // alpha, l1, l2
  template <typename C>
  static MR_HD void Prepare(C*) {}
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C*, C g) {
    v = Shrink(v - h[0] * g, h[0], h[1], h[2]);
  }
};
struct ProximalAdagradRule {
  static constexpr int kSlots = 1, kScalars = 3;  // lr, l1, l2
  template <typename C>
  static MR_HD void Prepare(C*) {}
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C* s, C g) {
    s[0] += g * g;
    const C lr = h[0] / static_cast<C>(std::sqrt(s[0]));
    v = Shrink(v - lr * g, lr, h[1], h[2]);
  }
};

// Duchi, Hazan and Singer, "Adaptive Subgradient Methods" (JMLR 2011): along the sum of all
// gradients, kept sparse by l1. h[3] is the number of the step.
struct AdagradDARule {
  static constexpr int kSlots = 2, kScalars = 3;  // lr, l1, l2
  static constexpr bool kCountsSteps = true;
  template <typename C>
  static MR_HD void Prepare(C*) {}
  template <typename C>
  static MR_HD void Step(const C* h, UpdateFlags, C& v, C* s, C g) {
    s[0] += g;
    s[1] += g * g;
    const C size = static_cast<C>(std::fabs(s[0]));
    const C pull = h[1] > C(0) ? Larger(size - h[1] * h[3], C(0)) : size;
    v = -static_cast<C>(std::copysign(h[0] * pull, s[0])) /
        (h[2] * h[3] * h[0] + static_cast<C>(std::sqrt(s[1])));
  }
};

// Those that count steps have their number behind the scalars.
template <typename Rule>
constexpr bool CountsSteps() {
  if constexpr (requires { Rule::kCountsSteps; }) return Rule::kCountsSteps;
  return false;
}

// Elements of a variable and its slots, and the steps that gradients make.
template <typename Rule, typename T>
struct Updater {
  using C = ComputeType<T>;
  T* var;
  T* slots[Rule::kSlots + 1];
  const T* scalars[Rule::kScalars];
  const int64_t* step;
  const T* gradient;
  UpdateFlags flags;

  explicit Updater(const UpdateParams& p)
      : var(static_cast<T*>(p.var)),
        slots{},
        scalars{},
        step(p.step),
        gradient(static_cast<const T*>(p.gradient)),
        flags{p.use_nesterov, p.update_slots, p.multiply_linear_by_lr} {
    for (int k = 0; k < Rule::kSlots; ++k) slots[k] = static_cast<T*>(p.slots[k]);
    for (int k = 0; k < Rule::kScalars; ++k) scalars[k] = static_cast<const T*>(p.scalars[k]);
  }
  MR_HD void Read(C* h) const {
    for (int k = 0; k < Rule::kScalars; ++k) h[k] = Widen(scalars[k][0]);
    if constexpr (CountsSteps<Rule>()) h[Rule::kScalars] = static_cast<C>(*step);
    Rule::Prepare(h);
  }
  // Every step is rounded to T, as if it were the last.
  MR_HD void Step(const C* h, int64_t at, int64_t from) const {
    C value = Widen(var[at]);
    C s[Rule::kSlots + 1] = {};
    for (int k = 0; k < Rule::kSlots; ++k) s[k] = Widen(slots[k][at]);
    Rule::Step(h, flags, value, s, Widen(gradient[from]));
    for (int k = 0; k < Rule::kSlots; ++k) slots[k][at] = Narrow<T>(s[k]);
    var[at] = Narrow<T>(value);
  }
};

template <typename Rule, typename T>
struct UpdateEach {
  Updater<Rule, T> updater;
  MR_HD void operator()(int64_t i) const {
    ComputeType<T> h[Rule::kScalars + 1];
    updater.Read(h);
    updater.Step(h, i, i);
  }
};

// One thread for each row and element that is updated, as for scatters.
template <typename Rule, typename T>
struct SparseUpdateEach {
  Updater<Rule, T> updater;
  SortedUpdates sorted;
  int64_t count, inner, rows;
  MR_HD void operator()(int64_t i) const {
    const int64_t first = i / inner, k = i - first * inner, row = sorted.rows[first];
    if (row == rows || (first > 0 && sorted.rows[first - 1] == row)) return;
    ComputeType<T> h[Rule::kScalars + 1];
    updater.Read(h);
    for (int64_t at = first; at < count && sorted.rows[at] == row; ++at) {
      updater.Step(h, row * inner + k, static_cast<int64_t>(sorted.order[at]) * inner + k);
    }
  }
};

template <typename Launcher, typename Rule>
Outcome UpdateBy(Queue queue, const UpdateParams& p) {
  return Dispatch(Floats(), p.type, [&]<typename T>() {
    return Launcher(queue).ForEach(p.n, UpdateEach<Rule, T>{Updater<Rule, T>(p)});
  });
}

template <typename Launcher, typename Rule>
Outcome SparseUpdateBy(Queue queue, const UpdateParams& p) {
  const Launcher launcher(queue);
  const int64_t dims[kMaxAxes] = {p.rows};
  SortedUpdates sorted{};
  const Outcome outcome = SortUpdates(launcher, p.index_type, p.indices, p.count, 1, dims, p.rows,
                                      p.scratch, p.scratch_bytes, &sorted);
  if (outcome != nullptr) return outcome;
  return Dispatch(Floats(), p.type, [&]<typename T>() {
    return launcher.ForEach(
        p.n, SparseUpdateEach<Rule, T>{Updater<Rule, T>(p), sorted, p.count, p.inner, p.rows});
  });
}

// The rules that rows have ops for.
template <typename Launcher>
Outcome RunSparseUpdate(Queue queue, const UpdateParams& p) {
  switch (p.rule) {
    case UpdateRule::kMomentum:
      return SparseUpdateBy<Launcher, MomentumRule>(queue, p);
    case UpdateRule::kKerasMomentum:
      return SparseUpdateBy<Launcher, KerasMomentumRule>(queue, p);
    case UpdateRule::kAdagrad:
      return SparseUpdateBy<Launcher, AdagradRule>(queue, p);
    case UpdateRule::kAdagradV2:
      return SparseUpdateBy<Launcher, AdagradV2Rule>(queue, p);
    case UpdateRule::kAdadelta:
      return SparseUpdateBy<Launcher, AdadeltaRule>(queue, p);
    case UpdateRule::kRmsProp:
      return SparseUpdateBy<Launcher, RmsPropRule>(queue, p);
    case UpdateRule::kCenteredRmsProp:
      return SparseUpdateBy<Launcher, CenteredRmsPropRule>(queue, p);
    case UpdateRule::kFtrl:
      return SparseUpdateBy<Launcher, FtrlRule<false>>(queue, p);
    case UpdateRule::kProximalGradientDescent:
      return SparseUpdateBy<Launcher, ProximalGradientDescentRule>(queue, p);
    case UpdateRule::kProximalAdagrad:
      return SparseUpdateBy<Launcher, ProximalAdagradRule>(queue, p);
    case UpdateRule::kAdagradDA:
      return SparseUpdateBy<Launcher, AdagradDARule>(queue, p);
    default:
      return "there is no update of rows by this rule";
  }
}

template <typename Launcher>
Outcome RunUpdate(Queue queue, const UpdateParams& p) {
  switch (p.rule) {
    case UpdateRule::kAmsgrad:
      return UpdateBy<Launcher, AmsgradRule>(queue, p);
    case UpdateRule::kFtrl:
      return UpdateBy<Launcher, FtrlRule<false>>(queue, p);
    case UpdateRule::kFtrlV2:
      return UpdateBy<Launcher, FtrlRule<true>>(queue, p);
    case UpdateRule::kProximalGradientDescent:
      return UpdateBy<Launcher, ProximalGradientDescentRule>(queue, p);
    case UpdateRule::kProximalAdagrad:
      return UpdateBy<Launcher, ProximalAdagradRule>(queue, p);
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
    case UpdateRule::kAdagradDA:
      return UpdateBy<Launcher, AdagradDARule>(queue, p);
  }
  return kNoLoop;
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_UPDATE_LOOPS_H_
