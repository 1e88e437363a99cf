// SPDX-License-Identifier: Apache-2.0
// Adam's update, for the optimizers that are Adam in part.
#ifndef TRAINING_OPTIMIZERS_ADAM_RULE_H_
#define TRAINING_OPTIMIZERS_ADAM_RULE_H_

#include "training/optimizers/keras_optimizer.h"

namespace millrace::optimizers {

// Moving means of the gradient and of its square.
Expr FirstMoment(const Expr& m, const Expr& g, double beta);
Expr SecondMoment(const Expr& v, const Expr& g, double beta);
// Corrections divide by 1 - beta^step: neither may be 1.
void CheckMoments(double beta_1, double beta_2, double epsilon, OptionChecks* checks);
// Of slots momentum, velocity and, with amsgrad, the largest velocity there was.
RuleResult AdamStep(const RuleArgs& a, const Expr& rate, double beta_1, double beta_2,
                    double epsilon, bool amsgrad);

}  // namespace millrace::optimizers

#endif  // TRAINING_OPTIMIZERS_ADAM_RULE_H_
