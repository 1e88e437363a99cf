// SPDX-License-Identifier: Apache-2.0
// Optimizers: a variable and its slots in one pass. Hyperparameters lie where the variable does.
#ifndef KERNELS_GPU_LOOPS_UPDATE_LOOPS_H_
#define KERNELS_GPU_LOOPS_UPDATE_LOOPS_H_

#include "kernels/gpu/loops/index_loops.h"
#include "kernels/gpu/loops/loops.h"
#include "kernels/training/update_rules.h"

namespace millrace::gpu {

// Elements of a variable and its slots, and the steps that gradients make.
template <typename Rule, typename T>
struct Updater {
  using C = ComputeType<T>;
  static constexpr int kAll = rules::kNumScalars<Rule>;
  static constexpr int kScalars = rules::kCountsSteps<Rule> ? kAll - 1 : kAll;
  T* var;
  T* slots[Rule::kSlots + 1];
  const T* scalars[kScalars];
  const int64_t* step;
  const T* gradient;
  rules::UpdateFlags flags;

  explicit Updater(const UpdateParams& p)
      : var(static_cast<T*>(p.var)),
        slots{},
        scalars{},
        step(p.step),
        gradient(static_cast<const T*>(p.gradient)),
        flags(p.flags) {
    for (int k = 0; k < Rule::kSlots; ++k) slots[k] = static_cast<T*>(p.slots[k]);
    for (int k = 0; k < kScalars; ++k) scalars[k] = static_cast<const T*>(p.scalars[k]);
  }
  MR_HD void Read(C* h) const {
    for (int k = 0; k < kScalars; ++k) h[k] = Widen(scalars[k][0]);
    if constexpr (rules::kCountsSteps<Rule>) h[kScalars] = static_cast<C>(*step);
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
    ComputeType<T> h[rules::kNumScalars<Rule>];
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
    ComputeType<T> h[rules::kNumScalars<Rule>];
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

// f.operator()<Rule>() for the rule that is named.
template <typename F>
Outcome WithRule(UpdateRule rule, const F& f) {
  switch (rule) {
    case UpdateRule::kGradientDescent:
      return f.template operator()<rules::GradientDescent>();
    case UpdateRule::kMomentum:
      return f.template operator()<rules::Momentum>();
    case UpdateRule::kKerasMomentum:
      return f.template operator()<rules::KerasMomentum>();
    case UpdateRule::kAdagrad:
      return f.template operator()<rules::Adagrad>();
    case UpdateRule::kAdagradV2:
      return f.template operator()<rules::AdagradV2>();
    case UpdateRule::kAdadelta:
      return f.template operator()<rules::Adadelta>();
    case UpdateRule::kRmsProp:
      return f.template operator()<rules::RmsProp>();
    case UpdateRule::kCenteredRmsProp:
      return f.template operator()<rules::CenteredRmsProp>();
    case UpdateRule::kAdam:
      return f.template operator()<rules::Adam>();
    case UpdateRule::kAmsgrad:
      return f.template operator()<rules::AdamWithAmsgrad>();
    case UpdateRule::kAdaMax:
      return f.template operator()<rules::AdaMax>();
    case UpdateRule::kFtrl:
      return f.template operator()<rules::Ftrl>();
    case UpdateRule::kFtrlV2:
      return f.template operator()<rules::FtrlV2>();
    case UpdateRule::kProximalGradientDescent:
      return f.template operator()<rules::ProximalGradientDescent>();
    case UpdateRule::kProximalAdagrad:
      return f.template operator()<rules::ProximalAdagrad>();
    case UpdateRule::kAdagradDA:
      return f.template operator()<rules::AdagradDA>();
  }
  return kNoLoop;
}

template <typename Launcher>
Outcome RunUpdate(Queue queue, const UpdateParams& p) {
  return WithRule(p.rule, [&]<typename Rule>() { return UpdateBy<Launcher, Rule>(queue, p); });
}

template <typename Launcher>
Outcome RunSparseUpdate(Queue queue, const UpdateParams& p) {
  return WithRule(p.rule, [&]<typename Rule>() -> Outcome {
    if constexpr (rules::kUpdatesRows<Rule>) {
      return SparseUpdateBy<Launcher, Rule>(queue, p);
    } else {
      return "there is no update of rows by this rule";
    }
  });
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_UPDATE_LOOPS_H_
