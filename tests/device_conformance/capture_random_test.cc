// SPDX-License-Identifier: Apache-2.0
// Random numbers in recorded steps: the same sequence as in ordinary ones, and no step's twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "millrace/core.h"
#include "millrace/ops.h"
#include "tests/device_conformance/capture_util.h"

namespace millrace::testing {
namespace {

class CaptureRandomTest : public CaptureFixture {
 protected:
  // Values of all steps of what `build` makes, recorded or not.
  template <typename Build>
  std::vector<Tensor> Steps(int count, bool captures, Build build) {
    if (p->master != nullptr) ExpectNothingLeft(*p);
    Begin();
    if (!captures) setenv("MILLRACE_CAPTURE", "off", 1);
    const std::vector<Output> fetches = build();
    p->Open(GetParam().threads);
    std::vector<Tensor> found;
    for (int i = 0; i < count; ++i) {
      ClientSession::RunRequest request;
      for (const Output& fetch : fetches) request.fetches.push_back(fetch.name());
      // One step in between is ordinary.
      if (i == 5) request.options.set_trace_level(pb::RunOptions::FULL_TRACE);
      const auto values = p->session->Run(std::move(request));
      EXPECT_TRUE(values.ok()) << values.status();
      if (!values.ok()) return found;
      found.insert(found.end(), values->begin(), values->end());
    }
    unsetenv("MILLRACE_CAPTURE");
    EXPECT_EQ(Launched(), captures ? count - 3 : 0) << Reasons();
    return found;
  }
  template <typename Build>
  void ExpectTheSame(int count, Build build) {
    const std::vector<Tensor> ordinary = Steps(count, false, build);
    const std::vector<Tensor> captured = Steps(count, true, build);
    ASSERT_EQ(captured.size(), ordinary.size());
    for (std::size_t i = 0; i < captured.size(); ++i) {
      EXPECT_TRUE(TensorsEqual(captured[i], ordinary[i])) << i;
      for (std::size_t k = 0; k < i; ++k) {
        EXPECT_FALSE(TensorsEqual(captured[k], captured[i])) << k << " and " << i;
      }
    }
  }
  Output Size(int32_t n) { return Constant(p->device, Tensor::FromValues<int32_t>({n})); }
};

INSTANTIATE_TEST_SUITE_P(Kinds, CaptureRandomTest, ::testing::ValuesIn(AcceleratorKinds()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(CaptureRandomTest, EveryDistributionGoesOnAsInOrdinarySteps) {
  ExpectTheSame(9, [&]() -> std::vector<Output> {
    const Scope& s = p->device;
    return {ops::Neg(s, ops::RandomUniform(s, Size(64), kFloat, {.seed = 3})),
            ops::Neg(s, ops::RandomStandardNormal(s, Size(70), kFloat, {.seed = 4})),
            ops::Neg(s, ops::TruncatedNormal(s, Size(33), kDouble, {.seed = 5, .seed2 = 6})),
            ops::Neg(s, ops::RandomUniform(s, Size(65), kFloat, {.seed = 3}))};
  });
}

TEST_P(CaptureRandomTest, DropoutDropsOthersInEveryStep) {
  ExpectTheSame(8, [&]() -> std::vector<Output> {
    const Scope& s = p->device;
    const Output x = Constant(s, Noise({4, 50}, 1));
    const Output size = Constant(s, Tensor::FromValues<int32_t>({4, 50}));
    const Output kept = ops::GreaterEqual(s, ops::RandomUniform(s, size, kFloat, {.seed = 9}),
                                          Constant(s, Tensor::Scalar<float>(0.4f)));
    const Output h = ops::Mul(s, x, ops::Cast(s, kept, kFloat));
    return {ops::MatMul(s, h, Constant(s, Noise({50, 7}, 2)))};
  });
}

TEST_P(CaptureRandomTest, UnseededNumbersAreNewInEveryStepToo) {
  const Output noise = ops::RandomUniform(p->device, Size(64), kFloat);
  const Output y = ops::Neg(p->device, ops::Neg(p->device, ops::Square(p->device, noise)));
  p->Open(GetParam().threads);
  std::vector<Tensor> found;
  for (int i = 0; i < 7; ++i) {
    found.push_back(p->Eval(y));
    for (int k = 0; k < i; ++k) EXPECT_FALSE(TensorsEqual(found[k], found[i])) << k << ", " << i;
  }
  EXPECT_EQ(Launched(), 5) << Reasons();
}

}  // namespace
}  // namespace millrace::testing
