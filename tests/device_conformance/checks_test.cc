// SPDX-License-Identifier: Apache-2.0
// What the host learns of a device's values, and what it draws for it: CheckNumerics and
// RandomShuffle, by the loops that GPUs run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/errors.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "tests/device_conformance/golden_device.h"
#include "tests/device_conformance/program.h"

namespace millrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// 100 times 1, and `values` among them.
Tensor With(const std::vector<float>& values) {
  Tensor t(kFloat, {100});
  for (float& x : t.flat<float>()) x = 1;
  for (std::size_t i = 0; i < values.size(); ++i) t.data<float>()[17 + 9 * i] = values[i];
  return t;
}

class ChecksTest : public ::testing::Test {
 protected:
  ChecksTest() : p("FAKE") {}
  void SetUp() override { ASSERT_EQ(PrepareGoldenDevice(), ""); }
  ~ChecksTest() override { ExpectNothingLeft(p); }
  Program p;
};

class CheckNumericsTest : public ChecksTest {
 protected:
  CheckNumericsTest() {
    x = Placeholder(p.root, kFloat, {100});
    // Neither end is the host's.
    const Output on_device = ops::Neg(p.device.WithOpName("first"), x);
    checked = ops::CheckNumerics(p.device.WithOpName("check"), on_device, "loss");
    checked_v2 = ops::CheckNumericsV2(p.device.WithOpName("check_v2"), on_device, "loss");
    last = ops::Neg(p.device.WithOpName("last"), checked);
    w = MakeVariable(p.device, "w", Constant(p.device, With({})), {.use_resource = true});
    train = AssignAdd(p.device, w, last);
    const Operation init = InitializeVariables(p.root);
    p.Open();
    p.RunTargets({init});
  }
  Status Check(const std::vector<float>& values, const Output& fetch) {
    return p.Run({{x, With(values)}}, {fetch}).status();
  }
  Output x, checked, checked_v2, last;
  Variable w;
  Operation train;
};

TEST_F(CheckNumericsTest, HandsOnWhatIsWell) {
  EXPECT_TRUE(TensorsEqual(p.Eval(last, {{x, With({3})}}), With({3})));
}

TEST_F(CheckNumericsTest, TellsWhatItFoundAndWhere) {
  const Status status = Check({kNan}, last);
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.ToString(),
              AllOf(HasSubstr("loss : Tensor had NaN values"), HasSubstr("{{node check}}"),
                    HasSubstr("/job:localhost/replica:0/task:0/device:FAKE:0")));
  EXPECT_THAT(Check({kInf}, last).ToString(), HasSubstr("Tensor had Inf values"));
  EXPECT_THAT(Check({-kInf, kNan}, last).ToString(), HasSubstr("Tensor had Inf and NaN values"));
  // They were negated.
  EXPECT_THAT(Check({kInf}, checked_v2).ToString(), HasSubstr("Tensor had -Inf values"));
  EXPECT_THAT(Check({-kInf, kInf, kNan}, checked_v2).ToString(),
              HasSubstr("Tensor had -Inf, +Inf, and NaN values"));
  // The next step starts anew.
  EXPECT_TRUE(Check({5}, last).ok());
}

TEST_F(CheckNumericsTest, KeepsBadValuesFromVariables) {
  EXPECT_FALSE(p.Run({{x, With({kNan})}}, {}, {train}).ok());
  EXPECT_TRUE(TensorsEqual(p.Eval(w.read), With({})));
  ASSERT_TRUE(p.Run({{x, With({})}}, {}, {train}).ok());
  EXPECT_EQ(p.Eval(w.read).data<float>()[0], 2);
}

TEST_F(CheckNumericsTest, EndsWithItsStep) {
  p.machine()->CloseGate("check");
  const auto values = p.Run({{x, With({})}}, {last}, {}, std::chrono::milliseconds(300));
  EXPECT_TRUE(errors::IsDeadlineExceeded(values.status())) << values.status();
  p.machine()->OpenGate("check");
  EXPECT_TRUE(Check({5}, last).ok());
}

TEST_F(CheckNumericsTest, GivesTheErrorOfWhatItChecksInstead) {
  p.machine()->FailNext("first", errors::DataLoss("cosmic ray"));
  const Status status = Check({1}, last);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("{{node first}}"));
}

class ShuffleTest : public ChecksTest {};

TEST_F(ShuffleTest, GivesTheCpusOrderInEveryStep) {
  Tensor rows(kFloat, {37, 3});
  for (int64_t i = 0; i < rows.num_elements(); ++i) rows.data<float>()[i] = static_cast<float>(i);
  const ops::RandomShuffleAttrs seeds{.seed = 5, .seed2 = 8};
  const Output x = Placeholder(p.root, kFloat, {37, 3});
  const Output here = ops::RandomShuffle(p.host(), x, seeds);
  const Output there = ops::RandomShuffle(p.device, x, seeds);
  // A single row is not shuffled.
  const Output begin = Constant(p.host(), Tensor::FromValues<int32_t>({0, 0}));
  const Output size = Constant(p.host(), Tensor::FromValues<int32_t>({1, 3}));
  const Output one = ops::RandomShuffle(p.device, ops::Slice(p.device, x, begin, size), seeds);
  p.Open();
  std::vector<Tensor> seen;
  for (int step = 0; step < 4; ++step) {
    const auto values = p.Run({{x, rows}}, {here, there, one});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(TensorsEqual((*values)[0], (*values)[1]));
    EXPECT_EQ((*values)[2].data<float>()[2], 2);
    EXPECT_FALSE(TensorsEqual((*values)[1], rows));
    for (const Tensor& before : seen) EXPECT_FALSE(TensorsEqual((*values)[1], before));
    seen.push_back((*values)[1]);
  }
}

}  // namespace
}  // namespace millrace::testing
