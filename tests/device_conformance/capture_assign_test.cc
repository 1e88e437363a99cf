// SPDX-License-Identifier: Apache-2.0
// Assignments in recorded steps: the variable stays where it is, and whoever has its old value
// keeps that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "tests/device_conformance/capture_util.h"

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;

class CaptureAssignTest : public CaptureFixture {
 protected:
  Variable MakeOne(const std::string& name, int64_t n, float value) {
    return MakeVariable(p->device, name, Constant(p->device, Filled(n, value)),
                        {.use_resource = true});
  }
  Output Number(float value) { return Constant(p->device, Tensor::Scalar<float>(value)); }
  static int64_t Recordings() {
    int64_t recordings = 0;
    for (const CaptureReport& report : CaptureReports()) recordings += report.recordings;
    return recordings;
  }
};

INSTANTIATE_TEST_SUITE_P(Kinds, CaptureAssignTest, ::testing::ValuesIn(AcceleratorKinds()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(CaptureAssignTest, AMovingAverageIsKeptInLaunchedSteps) {
  const Output x = Placeholder(p->root, kFloat, {8});
  const Variable average = MakeOne("average", 8, 1), sum = MakeOne("sum", 8, 0);
  const Output kept = ops::Mul(p->device, average.read, Number(0.75f));
  const Output next = ops::AddV2(p->device, kept, ops::Mul(p->device, x, Number(0.25f)));
  const Operation set = Assign(p->device, average, next);
  const Operation add = AssignAdd(p->device, sum, next);
  const Operation init = InitializeVariables(p->root);
  Open();
  p->RunTargets({init});
  float expected = 1, total = 0;
  for (int i = 1; i <= 9; ++i) {
    const auto values = p->Run({{x, Filled(8, static_cast<float>(i))}}, {next}, {set, add});
    ASSERT_TRUE(values.ok()) << values.status();
    expected = expected * 0.75f + static_cast<float>(i) * 0.25f;
    total += expected;
    EXPECT_TRUE(TensorsEqual((*values)[0], Filled(8, expected))) << i;
    EXPECT_TRUE(TensorsEqual(p->Eval(average.read), Filled(8, expected))) << i;
  }
  EXPECT_TRUE(TensorsEqual(p->Eval(sum.read), Filled(8, total)));
  EXPECT_EQ(Launched(), 7) << Reasons();
  EXPECT_EQ(Recordings(), 1);
}

TEST_P(CaptureAssignTest, WhoeverHasAShareOfTheOldValueKeepsIt) {
  const Variable w = MakeOne("w", 8, 1), old = MakeOne("old", 8, 0);
  const Output doubled = ops::AddV2(p->device, w.read, w.read);
  const Operation grow = Assign(p->device, w, ops::Neg(p->device, ops::Neg(p->device, doubled)));
  const Operation keep = Assign(p->device, old, w.read);  // in the memory of `w`
  const Operation init = InitializeVariables(p->root);
  Open();
  p->RunTargets({init});
  float expected = 1;
  const auto step = [&](int64_t launched) {
    p->RunTargets({grow});
    expected *= 2;
    EXPECT_EQ(Launched(), launched) << Reasons();
  };
  for (const int64_t launched : {0, 0, 1, 2}) step(launched);
  p->RunTargets({keep});
  EXPECT_EQ(expected, 16);
  step(2);
  EXPECT_THAT(Reasons(), HasSubstr("somebody has a share of the variable w"));
  EXPECT_TRUE(TensorsEqual(p->Eval(old.read), Filled(8, 16)));
  EXPECT_TRUE(TensorsEqual(p->Eval(w.read), Filled(8, expected)));
  // It lies elsewhere now.
  for (const int64_t launched : {2, 2, 2, 3, 4}) step(launched);
  EXPECT_EQ(Recordings(), 2);
  EXPECT_TRUE(TensorsEqual(p->Eval(old.read), Filled(8, 16)));
  EXPECT_TRUE(TensorsEqual(p->Eval(w.read), Filled(8, expected)));
}

TEST_P(CaptureAssignTest, AnOrdinaryStepInBetweenLeavesTheVariableInItsPlace) {
  const Output x = Placeholder(p->root, kFloat, {8});
  const Variable w = MakeOne("w", 8, 0);
  const Output y = ops::Neg(p->device, ops::Square(p->device, ops::Neg(p->device, x)));
  const Operation set = Assign(p->device, w, ops::AddV2(p->device, w.read, y));
  const Operation init = InitializeVariables(p->root);
  Open();
  p->RunTargets({init});
  for (int i = 1; i <= 10; ++i) {
    ClientSession::RunRequest request;
    request.feeds.emplace_back(x.name(), Filled(8, 2));
    request.targets.push_back(set.name());
    if (i % 4 == 0) request.options.set_trace_level(pb::RunOptions::FULL_TRACE);
    ASSERT_TRUE(p->session->Run(std::move(request)).ok());
    EXPECT_TRUE(TensorsEqual(p->Eval(w.read), Filled(8, -4 * i))) << i;
  }
  EXPECT_EQ(Launched(), 6) << Reasons();
  EXPECT_EQ(Recordings(), 1);
}

TEST_P(CaptureAssignTest, AFedValueIsCopiedAndOneThatIsAssignedLaterStays) {
  const Output x = Placeholder(p->root, kFloat, {8});
  const Variable fed = MakeOne("fed", 8, 0), sum = MakeOne("sum", 8, 0);
  const Output y = ops::Neg(p->device, ops::Square(p->device, x));
  const Operation one = Assign(p->device, fed, x);
  // Twice, in this order.
  const Operation two =
      Assign(p->device.WithControlDependencies({one}), fed, ops::AddV2(p->device, y, y));
  const Operation add = AssignAdd(p->device, sum, y);
  const Operation init = InitializeVariables(p->root);
  Open();
  p->RunTargets({init});
  for (int i = 1; i <= 6; ++i) {
    const auto values = p->Run({{x, Filled(8, static_cast<float>(i))}}, {y}, {two, add});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(TensorsEqual((*values)[0], Filled(8, static_cast<float>(-i * i))));
    EXPECT_TRUE(TensorsEqual(p->Eval(fed.read), Filled(8, static_cast<float>(-2 * i * i)))) << i;
  }
  EXPECT_EQ(Launched(), 4) << Reasons();
}

TEST_P(CaptureAssignTest, OtherShapesMakeTheStepOrdinary) {
  const Output x = Placeholder(p->root, kFloat, PartialShape({-1}));
  const Output handle = ops::VarHandleOp(p->device, kFloat, PartialShape({-1}));
  const Output y = ops::Neg(p->device, ops::Square(p->device, ops::Neg(p->device, x)));
  const Operation set = ops::AssignVariableOp(p->device, handle, y);
  const Output read = ops::ReadVariableOp(p->device, handle, kFloat);
  Open();
  int64_t i = 0;
  const auto step = [&](int64_t n, int64_t launched) {
    const float value = static_cast<float>(++i);
    const auto values = p->Run({{x, Filled(n, value)}}, {}, {set});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(TensorsEqual(p->Eval(read), Filled(n, -value * value))) << i;
    EXPECT_EQ(Launched(), launched) << i << ": " << Reasons();
  };
  for (const int64_t launched : {0, 0, 1, 2}) step(5, launched);
  for (const int64_t launched : {2, 2, 3, 4}) step(7, launched);
  step(5, 4);
  EXPECT_THAT(Reasons(), HasSubstr("a variable lies elsewhere"));
  step(5, 4);
  step(7, 4);
}

TEST_P(CaptureAssignTest, VariablesThatChangePlacesAreNotRecorded) {
  const Variable a = MakeOne("a", 8, 1), b = MakeOne("b", 8, 2);
  const Output of_a = ops::Identity(p->device, a.read), of_b = ops::Identity(p->device, b.read);
  const Scope after = p->device.WithControlDependencies({of_a.op(), of_b.op()});
  const Operation to_a = Assign(after, a, of_b), to_b = Assign(after, b, of_a);
  const Output more =
      ops::Neg(p->device, ops::Square(p->device, ops::AddV2(p->device, of_a, of_b)));
  const Operation init = InitializeVariables(p->root);
  Open();
  p->RunTargets({init});
  for (int i = 0; i < 7; ++i) {
    const auto values = p->Run({}, {more}, {to_a, to_b});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(TensorsEqual((*values)[0], Filled(8, -9)));
    EXPECT_TRUE(TensorsEqual(p->Eval(a.read), Filled(8, i % 2 == 0 ? 2 : 1))) << i;
    EXPECT_TRUE(TensorsEqual(p->Eval(b.read), Filled(8, i % 2 == 0 ? 1 : 2))) << i;
  }
  EXPECT_EQ(Launched(), 0);
  EXPECT_THAT(Reasons(), HasSubstr("somebody has a share of the variable"));
}

TEST(CaptureAssignFailuresTest, AStepThatFailsLeavesTheOldValue) {
  Program p("FAKE");
  const Output x = Placeholder(p.root, kFloat, {8});
  const Variable w =
      MakeVariable(p.device, "w", Constant(p.device, Filled(8, 5)), {.use_resource = true});
  const Output y = ops::Neg(p.device, ops::Square(p.device.WithOpName("first"), x));
  const Operation set = Assign(p.device, w, ops::AddV2(p.device, y, w.read));
  const Operation init = InitializeVariables(p.root);
  p.Open();
  p.RunTargets({init});
  float expected = 5;
  for (const bool traced : {false, true}) {
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(p.Run({{x, Filled(8, 1)}}, {}, {set}).ok());
      expected -= 1;
    }
    EXPECT_EQ(Launched(), traced ? 7 : 2) << Reasons();  // one of them failed
    p.machine()->FailNext("first", errors::DataLoss("cosmic ray"));
    ClientSession::RunRequest request;
    request.feeds.emplace_back(x.name(), Filled(8, 1));
    request.targets.push_back(set.name());
    if (traced) request.options.set_trace_level(pb::RunOptions::FULL_TRACE);
    EXPECT_EQ(p.session->Run(std::move(request)).status().code(), StatusCode::kDataLoss);
    EXPECT_TRUE(TensorsEqual(p.Eval(w.read), Filled(8, expected)));
  }
  ExpectNothingLeft(p);
}

}  // namespace
}  // namespace millrace::testing
