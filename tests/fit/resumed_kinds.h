// SPDX-License-Identifier: Apache-2.0
// Models of three kinds, trained for 30 steps, for tests of runs that are killed and gone on with:
// all that is left at the end of one is compared with that of another, bit for bit.
#ifndef TESTS_FIT_RESUMED_KINDS_H_
#define TESTS_FIT_RESUMED_KINDS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "millrace/data.h"
#include "millrace/layers.h"
#include "millrace/model.h"

namespace millrace::testing {

constexpr int64_t kEpochs = 3, kStepsPerEpoch = 10, kBatch = 4, kRows = 38, kClasses = 3;
constexpr int64_t kSteps = kEpochs * kStepsPerEpoch;

// A kind of model. Its seeds are drawn from `seed`: models of other seeds begin with other weights
// and drop other values, unless they go on from one another.
struct ResumedKind {
  const char* name;
  Tensor x;
  std::function<layers::LayerList(int64_t seed)> layers;
  std::function<OptimizerSpec()> optimizer;
  bool has_rate = true;  // that callbacks set
};
// An MLP with Dropout, a CNN with BatchNormalization and Dropout, and an LSTM.
std::vector<ResumedKind> ResumedKinds();
// Of kRows samples.
Tensor ResumedLabels();
// Of samples and labels, in an order of its own in each epoch: "seeded", or "cached" before the
// last shuffle.
Dataset ResumedBatches(const ResumedKind& kind, const std::string& how);

struct ResumedResult {
  Status status;
  std::map<std::string, Tensor> variables;
  std::vector<std::vector<double>> epochs;  // numbers of the epoch, then what was logged
  int64_t steps = 0;
  double best = 0;
};
// Weights, slots, counts, seeds, sums of metrics, and what was logged.
void KeepResult(Model& model, const History& history, ResumedResult* result);
// That a run ended as the whole one did, of which it may have made the last epochs only.
void ExpectEndOf(const ResumedResult& want, const ResumedResult& got);

}  // namespace millrace::testing

#endif  // TESTS_FIT_RESUMED_KINDS_H_
