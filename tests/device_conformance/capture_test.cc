// SPDX-License-Identifier: Apache-2.0
// Steps that are recorded and launched as one, over the devices that there are: what they compute
// is what steps compute that are not, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <thread>

#include "base/errors.h"
#include "millrace/control_flow.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "tests/device_conformance/capture_util.h"
#include "tests/device_conformance/kinds.h"
#include "tests/device_conformance/program.h"

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;

class CaptureTest : public CaptureFixture {};

INSTANTIATE_TEST_SUITE_P(Kinds, CaptureTest, ::testing::ValuesIn(AcceleratorKinds()),
                         [](const auto& info) { return std::string(info.param.name); });

Output Dense(const Scope& s, const std::string& name, const Output& x, int64_t in, int64_t out) {
  const Variable w =
      MakeVariable(s, name + "_w", Constant(s, Noise({in, out}, in)), {.use_resource = true});
  const Variable b =
      MakeVariable(s, name + "_b", Constant(s, Noise({out}, out)), {.use_resource = true});
  return ops::BiasAdd(s, ops::MatMul(s, x, w.read), b.read);
}

struct Trained {
  std::vector<Tensor> values;  // losses, then variables
  int64_t launched = 0;
  std::string reasons;
};

// `batches`: how many examples each step has.
Trained Train(Program& p, int threads, const std::string& optimizer,
              const std::vector<int64_t>& batches, bool captures) {
  if (!captures) setenv("MILLRACE_CAPTURE", "off", 1);
  const Output x = Placeholder(p.root.WithOpName("x"), kFloat, PartialShape({-1, 20}));
  const Output y = Placeholder(p.root.WithOpName("y"), kFloat, PartialShape({-1, 10}));
  const Output h = ops::Relu(p.device, Dense(p.device, "a", x, 20, 16));
  const Output loss =
      ReduceMean(p.device, SoftmaxCrossEntropy(p.device, Dense(p.device, "b", h, 16, 10), y));
  auto made = OptimizerByName(optimizer, 0.05f);
  EXPECT_TRUE(made.ok()) << made.status();
  const auto train = (*made)->Minimize(p.device, loss, nullptr);
  EXPECT_TRUE(train.ok()) << train.status();
  const Operation init = InitializeVariables(p.root);
  p.Open(threads);
  p.RunTargets({init});
  Trained trained;
  for (std::size_t step = 0; step < batches.size(); ++step) {
    const int64_t batch = batches[step];
    const auto values =
        p.Run({{x, Noise({batch, 20}, 77 + step)}, {y, Labels(batch)}}, {loss}, {*train});
    EXPECT_TRUE(values.ok()) << values.status();
    if (!values.ok()) return trained;
    trained.values.push_back((*values)[0]);
  }
  trained.launched = Launched();
  trained.reasons = Reasons();
  for (const Variable& v : Variables(p.graph)) trained.values.push_back(p.Eval(v.read));
  unsetenv("MILLRACE_CAPTURE");
  return trained;
}

void ExpectSame(const Trained& a, const Trained& b) {
  ASSERT_EQ(a.values.size(), b.values.size());
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    EXPECT_TRUE(TensorsEqual(a.values[i], b.values[i]))
        << i << ": " << a.values[i].DebugString() << " and " << b.values[i].DebugString();
  }
}

TEST_P(CaptureTest, TrainsToTheBitsOfOrdinarySteps) {
  for (const char* optimizer : {"sgd", "momentum", "adam"}) {
    SCOPED_TRACE(optimizer);
    const std::vector<int64_t> batches(8, 4);
    Begin();
    const Trained ordinary = Train(*p, GetParam().threads, optimizer, batches, false);
    EXPECT_EQ(ordinary.launched, 0);
    ExpectNothingLeft(*p);
    Begin();
    const Trained captured = Train(*p, GetParam().threads, optimizer, batches, true);
    EXPECT_EQ(captured.launched, 6) << captured.reasons;
    ExpectSame(captured, ordinary);
  }
}

TEST_P(CaptureTest, StepsWithOtherShapesRunAsEverAndThoseWithTheOldOnesAreLaunchedAgain) {
  const std::vector<int64_t> batches = {4, 4, 4, 4, 7, 4, 4, 7, 4, 7, 4};
  const Trained ordinary = Train(*p, GetParam().threads, "momentum", batches, false);
  ExpectNothingLeft(*p);
  Begin();
  const Trained captured = Train(*p, GetParam().threads, "momentum", batches, true);
  // But for two steps of each shape.
  EXPECT_EQ(captured.launched, 7) << captured.reasons;
  ExpectSame(captured, ordinary);
}

TEST_P(CaptureTest, ReadsAndUpdatesVariablesWhereTheyLie) {
  const Output x = Placeholder(p->root, kFloat, {8});
  const Variable w =
      MakeVariable(p->device, "w", Constant(p->device, Filled(8, 1)), {.use_resource = true});
  const Output sum = ops::AddV2(p->device, ops::Neg(p->device, x), w.read);
  const Operation add = AssignAdd(p->device, w, ops::Square(p->device, x));
  const Output fed = Placeholder(p->root, kFloat, {8});
  const Operation set = Assign(p->device, w, fed);
  const Operation init = InitializeVariables(p->root);
  Open();
  p->RunTargets({init});
  float expected = 1;
  const auto step = [&](int64_t launched) {
    const auto values = p->Run({{x, Filled(8, 2)}}, {sum}, {add});
    ASSERT_TRUE(values.ok()) << values.status();
    // The read may come before the update or after it.
    const float read = (*values)[0].data<float>()[0] + 2;
    EXPECT_TRUE(read == expected || read == expected + 4) << read << " of " << expected;
    expected += 4;
    EXPECT_EQ(Launched(), launched) << Reasons();
  };
  step(0);
  step(0);
  for (int i = 1; i <= 3; ++i) step(i);
  EXPECT_TRUE(TensorsEqual(p->Eval(w.read), Filled(8, expected)));
  // The value lies elsewhere afterwards.
  ASSERT_TRUE(p->Run({{fed, Filled(8, 50)}}, {}, {set}).ok());
  expected = 50;
  step(3);
  EXPECT_THAT(Reasons(), HasSubstr("a variable lies elsewhere"));
  step(3);
  step(3);
  step(4);
  step(5);
  EXPECT_TRUE(TensorsEqual(p->Eval(w.read), Filled(8, expected)));
}

TEST_P(CaptureTest, FetchesVariablesAndTheFedValuesThemselves) {
  const Output x = Placeholder(p->root, kFloat, {8});
  const Output same = ops::Identity(p->device, x);
  const Variable w =
      MakeVariable(p->device, "w", Constant(p->device, Filled(8, 0)), {.use_resource = true});
  const Output y = ops::Neg(p->device, ops::Square(p->device, same));
  const Operation add = AssignAdd(p->device, w, y);
  const Output fixed = Constant(p->device, Filled(3, 9));
  const Operation init = InitializeVariables(p->root);
  Open();
  p->RunTargets({init});
  std::vector<Tensor> kept;
  float sum = 0;
  for (int i = 1; i <= 8; ++i) {
    const auto values =
        p->Run({{x, Filled(8, static_cast<float>(i))}}, {same, y, fixed, w.read}, {add});
    ASSERT_TRUE(values.ok()) << values.status();
    // The read may come before the update or after it.
    const float before = sum, read = (*values)[3].data<float>()[7];
    sum -= static_cast<float>(i * i);
    EXPECT_TRUE(read == before || read == sum) << read;
    EXPECT_TRUE(TensorsEqual((*values)[3], Filled(8, read)));
    EXPECT_TRUE(TensorsEqual((*values)[0], Filled(8, static_cast<float>(i))));
    EXPECT_TRUE(TensorsEqual((*values)[1], Filled(8, static_cast<float>(-i * i))));
    EXPECT_TRUE(TensorsEqual((*values)[2], Filled(3, 9)));
    kept.push_back((*values)[1]);
  }
  EXPECT_EQ(Launched(), 6) << Reasons();
  for (int i = 1; i <= 8; ++i) {
    EXPECT_TRUE(TensorsEqual(kept[i - 1], Filled(8, static_cast<float>(-i * i)))) << i;
  }
  EXPECT_TRUE(TensorsEqual(p->Eval(w.read), Filled(8, -204)));
}

TEST_P(CaptureTest, ValuesInHostMemoryAreTheSameOrTheStepIsOrdinary) {
  const Output x = Placeholder(p->root, kFloat, PartialShape({-1}));
  const Output begin = Placeholder(p->root, kInt32, {1});
  const Output y = ops::Neg(p->device, ops::Square(p->device, ops::Neg(p->device, x)));
  const Output part =
      ops::Slice(p->device, y, begin, Constant(p->device, Tensor::FromValues<int32_t>({2})));
  Open();
  int64_t launched = 0;
  for (int i = 0; i < 12; ++i) {
    const int32_t from = i < 6 ? 1 : i % 2;
    Tensor fed(kFloat, {5});
    for (int k = 0; k < 5; ++k) fed.data<float>()[k] = static_cast<float>(i + k);
    const auto values = p->Run({{x, fed}, {begin, Tensor::FromValues<int32_t>({from})}}, {part});
    ASSERT_TRUE(values.ok()) << values.status();
    for (int k = 0; k < 2; ++k) {
      const float v = static_cast<float>(i + k + from);
      EXPECT_EQ((*values)[0].data<float>()[k], -v * v) << i;
    }
    launched = Launched();
  }
  EXPECT_EQ(launched, 4 + 3 + 1) << Reasons();
}

TEST_P(CaptureTest, ASessionMaySwitchItOffOrOn) {
  for (const bool enable : {false, true}) {
    if (p->master != nullptr) ExpectNothingLeft(*p);
    Begin();
    const Output x = Placeholder(p->root, kFloat, {4});
    const Output y = ops::Neg(p->device, ops::Square(p->device, ops::Neg(p->device, x)));
    auto* const options = p->config.mutable_graph_options()->mutable_rewrite_options();
    options->add_custom_optimizers()->set_name("another");
    auto* const optimizer = options->add_custom_optimizers();
    optimizer->set_name("millrace_capture");
    (*optimizer->mutable_parameter_map())["enable"].set_b(enable);
    Open();
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(TensorsEqual(p->Eval(y, {{x, Filled(4, 3)}}), Filled(4, -9)));
    }
    EXPECT_EQ(Launched(), enable ? 3 : 0);
    EXPECT_EQ(CaptureReports().empty(), !enable);
  }
}

TEST_P(CaptureTest, WhatWaitsForTheHostIsNotRecorded) {
  const Output x = Placeholder(p->root, kFloat, {4});
  const Output there = ops::Square(p->device, ops::Neg(p->device, x));
  const Output back = ops::Neg(p->host(), there);
  const Output y = ops::Square(p->device, ops::Neg(p->device, back));
  Open();
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(TensorsEqual(p->Eval(y, {{x, Filled(4, 3)}}), Filled(4, 81)));
  }
  EXPECT_EQ(Launched(), 0);
  EXPECT_THAT(Reasons(), HasSubstr("depends, or may depend, on what the same step sends"));
}

TEST_P(CaptureTest, LoopsAreNotRecorded) {
  const Output start = Placeholder(p->root, kFloat, {});
  const auto loop = WhileLoop(
      p->device, {start},
      [&](const Scope& s, std::span<const Output> v) {
        return ops::Less(s, v[0], Constant(s, Tensor::Scalar<float>(100)));
      },
      [&](const Scope& s, std::span<const Output> v) {
        return std::vector<Output>{ops::AddV2(s, v[0], v[0])};
      });
  Open();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(p->Eval(loop[0], {{start, Tensor::Scalar<float>(3)}}).scalar<float>(), 192);
  }
  EXPECT_EQ(Launched(), 0);
  EXPECT_THAT(Reasons(), HasSubstr("control flow"));
}

TEST_P(CaptureTest, PassesValuesToTheOtherDevice) {
  const Output x = Placeholder(p->root, kFloat, {100});
  Output y = x;
  for (int i = 0; i < 4; ++i) y = ops::Neg(p->On(0), ops::Square(p->On(0), y));
  for (int i = 0; i < 4; ++i) y = ops::Square(p->On(1), ops::Neg(p->On(1), y));
  Open();
  for (int i = 0; i < 8; ++i) {
    const float from = i % 2 == 0 ? 1 : -1;
    EXPECT_TRUE(TensorsEqual(p->Eval(y, {{x, Filled(100, from)}}), Filled(100, 1)));
  }
  EXPECT_EQ(Launched(), 12) << Reasons();
}

TEST_P(CaptureTest, SessionsThatRunAtOnceShareTheDevice) {
  const Output x = Placeholder(p->root, kFloat, {100});
  Output y = x;
  for (int i = 0; i < 10; ++i) y = ops::AddV2(p->device, y, Constant(p->device, Filled(100, 1)));
  Open();
  const std::unique_ptr<ClientSession> sessions[] = {p->NewSession(), p->NewSession()};
  std::vector<std::thread> users;
  for (int u = 0; u < 4; ++u) {
    users.emplace_back([&, u] {
      for (int i = 0; i < 12; ++i) {
        const float start = static_cast<float>(100 * u + i);
        const auto values = sessions[u % 2]->Run({{x.name(), Filled(100, start)}}, {y.name()});
        ASSERT_TRUE(values.ok()) << values.status();
        EXPECT_TRUE(TensorsEqual((*values)[0], Filled(100, start + 10)));
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_GT(Launched(), 0) << Reasons();
}

TEST_P(CaptureTest, StepsOfOneSessionThatRunAtOnceDoNotMix) {
  const Output x = Placeholder(p->root, kFloat, {1000});
  Output y = x;
  for (int i = 0; i < 10; ++i) y = ops::AddV2(p->device, y, Constant(p->device, Filled(1000, 1)));
  Open();
  std::vector<std::thread> users;
  for (int u = 0; u < 3; ++u) {
    users.emplace_back([&, u] {
      for (int i = 0; i < 15; ++i) {
        const float start = static_cast<float>(100 * u + i);
        const auto values = p->Run({{x, Filled(1000, start)}}, {y});
        ASSERT_TRUE(values.ok()) << values.status();
        EXPECT_TRUE(TensorsEqual((*values)[0], Filled(1000, start + 10)));
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_GT(Launched(), 0) << Reasons();
}

TEST_P(CaptureTest, ARunInRoundsComputesWhatItHasBeenFed) {
  const Output a = Placeholder(p->root, kFloat, {4});
  const Output b = Placeholder(p->root, kFloat, {4});
  const Output one = ops::Neg(p->device, ops::Square(p->device, a));
  const Output two = ops::Neg(p->device, ops::Square(p->device, b));
  Open();
  for (int i = 0; i < 5; ++i) {
    const auto handle =
        p->session->PartialRunSetup({a.name(), b.name()}, {one.name(), two.name()}, {});
    ASSERT_TRUE(handle.ok()) << handle.status();
    const auto first = p->session->PartialRun(*handle, {{a.name(), Filled(4, 2)}}, {one.name()});
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_TRUE(TensorsEqual((*first)[0], Filled(4, -4)));
    const auto second = p->session->PartialRun(*handle, {{b.name(), Filled(4, 3)}}, {two.name()});
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_TRUE(TensorsEqual((*second)[0], Filled(4, -9)));
  }
}

TEST_P(CaptureTest, AStepThatPassesThroughAQueueOfTheHostIsNotRecorded) {
  const Output x = Placeholder(p->root, kFloat, {4});
  const Output queue = ops::FIFOQueueV2(p->host(), {kFloat}, {.shapes = {PartialShape({4})}});
  const Output in = ops::Neg(p->device, ops::Square(p->device, x));
  const Operation put = ops::QueueEnqueueV2(p->host(), queue, {in});
  const Output out = ops::QueueDequeueV2(p->host(), queue, {kFloat})[0];
  const Output y = ops::Neg(p->device, ops::Square(p->device, out));
  Open();
  for (int i = 0; i < 5; ++i) {
    const auto values = p->Run({{x, Filled(4, 2)}}, {y}, {put});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(TensorsEqual((*values)[0], Filled(4, -16)));
  }
  EXPECT_EQ(Launched(), 0);
}

TEST_P(CaptureTest, AWatchedStepRunsNodeByNode) {
  const Output x = Placeholder(p->root, kFloat, {4});
  const Output y = ops::Neg(p->device, ops::Square(p->device, ops::Neg(p->device, x)));
  Open();
  for (int i = 0; i < 4; ++i) p->Eval(y, {{x, Filled(4, 2)}});
  EXPECT_EQ(Launched(), 2) << Reasons();
  ClientSession::RunRequest request;
  request.feeds.emplace_back(x.name(), Filled(4, 2));
  request.fetches.push_back(y.name());
  request.options.set_trace_level(pb::RunOptions::FULL_TRACE);
  const auto values = p->session->Run(std::move(request));
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_TRUE(TensorsEqual((*values)[0], Filled(4, -4)));
  EXPECT_EQ(Launched(), 2);
}

// ---- when something is wrong ----

class CaptureFailuresTest : public ::testing::Test {
 protected:
  CaptureFailuresTest() : p("FAKE") {
    x = Placeholder(p.root, kFloat, {100});
    y = ops::Neg(p.device.WithOpName("first"), x);
    z = ops::Exp(p.device.WithOpName("second"), y);
    w = MakeVariable(p.device, "w", Constant(p.device, Filled(100, 0)), {.use_resource = true});
    train = AssignAdd(p.device, w, z);
    init = InitializeVariables(p.root);
    p.Open();
    p.RunTargets({init});
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(Run().ok());
    EXPECT_EQ(Launched(), 2) << Reasons();
  }
  ~CaptureFailuresTest() override { ExpectNothingLeft(p); }
  StatusOr<std::vector<Tensor>> Run(std::chrono::milliseconds limit = {}) {
    return p.Run({{x, Filled(100, 0)}}, {z}, {train}, limit);
  }
  void ExpectItWorks(float sum) {
    const int64_t before = Launched();
    const auto values = Run();
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(TensorsEqual((*values)[0], Filled(100, 1)));
    EXPECT_EQ(Launched(), before + 1) << Reasons();
    EXPECT_TRUE(TensorsEqual(p.Eval(w.read), Filled(100, sum)));
  }
  Program p;
  Output x, y, z;
  Variable w;
  Operation train, init;
};

TEST_F(CaptureFailuresTest, AnOperationThatFailsIsNamedAndChangesNothing) {
  p.machine()->FailNext("first", errors::DataLoss("cosmic ray"));
  const auto values = Run();
  EXPECT_EQ(values.status().code(), StatusCode::kDataLoss) << values.status();
  EXPECT_THAT(values.status().ToString(), HasSubstr("{{node first}}"));
  EXPECT_TRUE(TensorsEqual(p.Eval(w.read), Filled(100, 4)));
  ExpectItWorks(5);
}

TEST_F(CaptureFailuresTest, ACopyThatFailsIsNamed) {
  p.machine()->FailNextCopies(errors::Internal("no carrier"));
  EXPECT_THAT(Run().status().ToString(), HasSubstr("no carrier"));
  ExpectItWorks(5);
}

TEST_F(CaptureFailuresTest, AStuckDeviceIsToldByTheDeadlineAndTheNextStepIsRight) {
  p.machine()->CloseGate("second");
  const auto values = Run(std::chrono::seconds(2));
  EXPECT_TRUE(errors::IsDeadlineExceeded(values.status())) << values.status();
  EXPECT_THAT(values.status().ToString(), HasSubstr("{{node second}}"));
  p.machine()->OpenGate("second");
  EXPECT_TRUE(p.machine()->Synchronize(std::chrono::seconds(30)).ok());
  EXPECT_TRUE(TensorsEqual(p.Eval(w.read), Filled(100, 5)));
  ExpectItWorks(6);
}

TEST_F(CaptureFailuresTest, ASessionThatIsClosedInALaunchedStepLeavesNothing) {
  p.machine()->CloseGate("second");
  std::thread runner([&] {
    const auto values = Run();
    EXPECT_TRUE(errors::IsCancelled(values.status())) << values.status();
  });
  EXPECT_TRUE(p.machine()->WaitUntilSomethingStands());
  EXPECT_TRUE(p.session->Close().ok());
  runner.join();
  p.machine()->OpenGate("second");
}

TEST_F(CaptureFailuresTest, WithoutMemoryForARecordingStepsStayOrdinary) {
  const Output other = ops::Neg(p.device, ops::Square(p.device, ops::Exp(p.device, x)));
  p.session = p.NewSession();
  for (int i = 0; i < 2; ++i) p.Eval(other, {{x, Filled(100, 0)}});
  p.machine()->FailNextAllocations();  // that of the place of the input
  EXPECT_TRUE(TensorsEqual(p.Eval(other, {{x, Filled(100, 0)}}), Filled(100, -1)));
  EXPECT_EQ(Launched(), 0);
  EXPECT_THAT(Reasons(), HasSubstr("OOM"));
  EXPECT_TRUE(TensorsEqual(p.Eval(other, {{x, Filled(100, 0)}}), Filled(100, -1)));
  EXPECT_EQ(Launched(), 1) << Reasons();
}

}  // namespace
}  // namespace millrace::testing
