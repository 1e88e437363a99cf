// SPDX-License-Identifier: Apache-2.0
// Training op by op, in the caller's thread and without rewrites, as docs/fit.md says: its numbers
// are those of a run with all threads and rewrites, and a debugger stops in the caller's thread.
#include <gtest/gtest.h>

#include "base/strings.h"
#include "millrace/model.h"
#include "tests/fit/resumed_kinds.h"

namespace millrace {
namespace {

using testing::ResumedKind;
using testing::ResumedKinds;
using testing::ResumedLabels;
using testing::ResumedResult;

ResumedResult Train(const ResumedKind& kind, const SessionOptions& session) {
  Model model(layers::Sequential(kind.layers(1)), {.seed = 3, .session = session});
  ResumedResult result;
  result.status = model.Compile({.optimizer = kind.optimizer(),
                                 .loss = "sparse_categorical_crossentropy",
                                 .metrics = {"accuracy"}});
  if (!result.status.ok()) return result;
  FitOptions fit;
  fit.batch_size = testing::kBatch;
  fit.epochs = testing::kEpochs;
  fit.verbose = Verbose::kSilent;
  fit.validation = ValidationData{kind.x.Slice(0, 5), ResumedLabels().Slice(0, 5)};
  const StatusOr<History> history = model.Fit(kind.x, ResumedLabels(), fit);
  result.status = history.status();
  if (history.ok()) KeepResult(model, *history, &result);
  return result;
}

class OpByOpTest : public ::testing::TestWithParam<int> {};

TEST_P(OpByOpTest, GivesTheSameBits) {
  const ResumedKind kind = ResumedKinds()[static_cast<std::size_t>(GetParam())];
  const ResumedResult usual = Train(kind, {});
  ASSERT_TRUE(usual.status.ok()) << usual.status;
  SessionOptions op_by_op;
  op_by_op.inter_op_threads = -1;
  op_by_op.intra_op_threads = 1;
  op_by_op.rewrite_graph = false;
  ExpectEndOf(usual, Train(kind, op_by_op));
}

INSTANTIATE_TEST_SUITE_P(Kinds, OpByOpTest, ::testing::Range(0, 3), [](const auto& info) {
  return std::string(ResumedKinds()[static_cast<std::size_t>(info.param)].name);
});

}  // namespace
}  // namespace millrace
