// SPDX-License-Identifier: Apache-2.0
// What the algorithms of optimizers have in common.
//
// kSlots says how many variables go with the one that is trained. kScalars names the inputs of the
// op that arrive in h, in this order. Prepare, once in an update, replaces h by what does not
// depend on the element. Step changes the variable v and its slots s, given the gradient g. C is
// the type that is computed in. All functions are pure but for their arguments.
#ifndef KERNELS_TRAINING_UPDATE_RULE_H_
#define KERNELS_TRAINING_UPDATE_RULE_H_

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

}  // namespace millrace::rules

#endif  // KERNELS_TRAINING_UPDATE_RULE_H_
