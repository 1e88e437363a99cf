// SPDX-License-Identifier: Apache-2.0
// Recorded steps in which elementwise nodes were put together: whole training steps are launched
// as one, to the bits of ordinary steps, and nothing slow is recorded while loops are compiled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "base/notification.h"
#include "base/strings.h"
#include "jit/code_cache.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "tests/device_conformance/capture_util.h"

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;

// Beside the program where there are no runfiles.
constexpr char kLibrary[] = "jit/libmillrace_jit.so";

class CaptureFusedTest : public CaptureFixture {
 protected:
  CaptureFusedTest() { jit::CodeCache::ReplaceGlobalForTest(&cache); }
  ~CaptureFusedTest() override {
    p.reset();  // its sessions have what the cache compiled
    jit::CodeCache::ReplaceGlobalForTest(nullptr);
  }
  void Open(bool fuses = true) {
    p->config.mutable_graph_options()->mutable_rewrite_options()->set_remapping(
        fuses ? pb::RewriterConfig::ON : pb::RewriterConfig::DEFAULT);
    CaptureFixture::Open();
  }
  // The one program that has been launched; none: an empty report.
  static CaptureReport TheLaunched() {
    CaptureReport found;
    int programs = 0;
    for (const CaptureReport& report : CaptureReports()) {
      if (report.launched_steps == 0) continue;
      found = report;
      ++programs;
    }
    EXPECT_LE(programs, 1);
    return found;
  }

  bool waits = false;
  Notification may_compile;
  jit::CodeCache cache{
      {.library = access(kLibrary, R_OK) == 0 ? kLibrary : "", .nice = 0, .before_compile = [this] {
         if (waits) may_compile.Wait();
       }}};
  jit::CodeCache without_compiler{{.library = "jit/none.so", .nice = 0}};
};

INSTANTIATE_TEST_SUITE_P(Kinds, CaptureFusedTest, ::testing::ValuesIn(AcceleratorKinds()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(CaptureFusedTest, WaitsForLoopsThatAreBeingCompiledHoweverLongThatTakes) {
  waits = true;
  const Output x = Placeholder(p->root, kFloat, {6, 8});
  const Output row = ops::Square(
      p->device,
      ops::MatMul(
          p->device, x,
          ops::Transpose(p->device, x, Constant(p->device, Tensor::FromValues<int32_t>({1, 0})))));
  const Output y = ops::Neg(p->device.WithOpName("last"), ops::Relu(p->device, row));
  Open();
  std::vector<Tensor> before;
  // More than the steps in vain after which a program is left alone.
  for (int i = 0; i < 205; ++i) before.push_back(p->Eval(y, {{x, Noise({6, 8}, i % 5)}}));
  EXPECT_EQ(Launched(), 0);
  EXPECT_THAT(Reasons(), HasSubstr("{{node last}} (_Fused) is still being compiled"));
  may_compile.Notify();
  ASSERT_TRUE(cache.WaitUntilIdle());
  EXPECT_EQ(cache.counts().failed, 0);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(TensorsEqual(p->Eval(y, {{x, Noise({6, 8}, i % 5)}}), before[i])) << i;
  }
  EXPECT_EQ(Launched(), 10) << Reasons();
  const CaptureReport report = TheLaunched();
  EXPECT_EQ(report.recordings, 1);
  EXPECT_EQ(report.recorded_operations, 3) << "a transposition, a product, and one loop";
}

TEST_P(CaptureFusedTest, RecordsTheNodesOneByOneWhereThereIsNoLoop) {
  const Output x = Placeholder(p->root, kFloat, {6, 8});
  const Output column = Placeholder(p->root, kFloat, {6, 1});
  const Output y = ops::Neg(p->device, ops::Square(p->device, ops::Mul(p->device, x, column)));
  const Output z = Placeholder(p->root, kDouble, {5});
  // One loop, which nobody compiles.
  jit::CodeCache::ReplaceGlobalForTest(&without_compiler);
  const Output e = ops::Neg(p->device, ops::Exp(p->device, z));
  const Output last = ops::Sum(p->device, e, Constant(p->device, Tensor::FromValues<int32_t>({0})));
  const Output scan = ops::Cumsum(p->device, z, Constant(p->device, Tensor::Scalar<int32_t>(0)));
  Open();
  Tensor zeros(kDouble, {5});
  for (double& d : zeros.flat<double>()) d = 0;
  for (int i = 0; i < 8; ++i) {
    const Tensor in = Noise({6, 8}, i), factors = Noise({6, 1}, 100 + i);
    const auto values = p->Run({{x, in}, {column, factors}, {z, zeros}}, {y, last, scan});
    ASSERT_TRUE(values.ok()) << values.status();
    for (int k = 0; k < 48; ++k) {
      const float product = in.data<float>()[k] * factors.data<float>()[k / 8];
      EXPECT_EQ((*values)[0].data<float>()[k], -(product * product)) << i << ", " << k;
    }
    EXPECT_EQ((*values)[1].scalar<double>(), -5) << "reduced by a kernel of its own";
    if (i != 1) continue;
    ASSERT_TRUE(without_compiler.WaitUntilIdle());
    EXPECT_EQ(without_compiler.counts().requested, 1);
    EXPECT_EQ(without_compiler.counts().failed, 1);
  }
  EXPECT_EQ(Launched(), 6) << Reasons();
  EXPECT_EQ(TheLaunched().recorded_operations, 7);
}

TEST_P(CaptureFusedTest, OtherShapesHaveRecordingsOfTheirOwnThatWaitForTheirOwnLoops) {
  const Output x = Placeholder(p->root, kFloat, PartialShape({-1, 8}));
  const Output b = Placeholder(p->root, kFloat, PartialShape());
  const Output sum = ops::AddV2(p->device, ops::Square(p->device, x), b);
  const Output y =
      ops::Neg(p->device, ops::Cumsum(p->device, ops::Relu(p->device, ops::Mul(p->device, sum, b)),
                                      Constant(p->device, Tensor::Scalar<int32_t>(0))));
  const Output last = ops::Square(p->device, y);
  Open();
  const auto step = [&](const Shape& shape) {
    const Tensor in = Noise({4, 8}, 1), by = Noise(shape, 2);
    const Tensor found = p->Eval(last, {{x, in}, {b, by}});
    ASSERT_EQ(found.num_elements(), 32);
    float scanned[8] = {};
    for (int k = 0; k < 32; ++k) {
      const float v = in.data<float>()[k];
      const float with = by.data<float>()[k % by.num_elements()];
      const float product = (v * v + with) * with;
      scanned[k % 8] += product > 0 ? product : 0;
      EXPECT_FLOAT_EQ(found.data<float>()[k], scanned[k % 8] * scanned[k % 8]) << k;
    }
  };
  for (int i = 0; i < 2; ++i) step({8});
  ASSERT_TRUE(cache.WaitUntilIdle());
  for (int i = 0; i < 2; ++i) step({8});
  EXPECT_EQ(Launched(), 2) << Reasons();
  for (int i = 0; i < 2; ++i) step({});  // one element: another loop
  ASSERT_TRUE(cache.WaitUntilIdle());
  for (int i = 0; i < 2; ++i) step({});
  EXPECT_EQ(Launched(), 4) << Reasons();
  step({8});
  EXPECT_EQ(Launched(), 5) << Reasons();
  EXPECT_EQ(TheLaunched().recordings, 2);
}

// ---- whole training steps ----

Output Weights(const Scope& s, const std::string& name, const Shape& shape) {
  return MakeVariable(s, name, Constant(s, Noise(shape, static_cast<uint32_t>(shape.dim(0)))),
                      {.use_resource = true})
      .read;
}

Output Dense(const Scope& s, const std::string& name, const Output& x, int64_t in, int64_t out) {
  return ops::BiasAdd(s, ops::MatMul(s, x, Weights(s, name + "_w", {in, out})),
                      Weights(s, name + "_b", {out}));
}

// Logits of [batch, 64]. Two hidden layers, one with an activation that is several nodes.
Output Mlp(const Scope& s, const Output& x) {
  const Output one = ops::Relu(s, Dense(s, "one", x, 64, 24));
  const Output two = Dense(s, "two", one, 24, 16);
  const Output gate = ops::Relu6(s, ops::AddV2(s, two, Constant(s, Tensor::Scalar<float>(3))));
  return Dense(s, "three", ops::Mul(s, two, gate), 16, 10);
}

// Two convolutions.
Output Cnn(const Scope& s, const Output& x) {
  const auto block = [&](const std::string& name, const Output& in, int64_t from, int64_t to) {
    const Output y =
        ops::Conv2D(s, in, Weights(s, name + "_w", {3, 3, from, to}), {1, 1, 1, 1}, "SAME");
    const Output biased = ops::BiasAdd(s, y, Weights(s, name + "_b", {to}));
    return ops::MaxPool(s, ops::Relu(s, biased), {1, 2, 2, 1}, {1, 2, 2, 1}, "SAME");
  };
  const Output images = ops::Reshape(s, x, {-1, 8, 8, 1});
  const Output pooled = block("two", block("one", images, 1, 4), 4, 6);
  return Dense(s, "three", ops::Reshape(s, pooled, {-1, 24}), 24, 10);
}

struct Trained {
  std::vector<Tensor> values;  // losses, then variables
  CaptureReport report;
  std::string reasons;
};

constexpr int kSteps = 10, kWarmSteps = 3;

struct Training {
  const char* model;
  const char* optimizer;
  bool fuses;
};

class CaptureTrainingTest : public CaptureFusedTest {
 protected:
  Trained Train(const Training& of, bool captures) {
    if (!captures) setenv("MILLRACE_CAPTURE", "off", 1);
    if (p->master != nullptr) ExpectNothingLeft(*p);
    Begin();
    const Scope& s = p->device;
    const Output x = Placeholder(p->root.WithOpName("x"), kFloat, PartialShape({-1, 64}));
    const Output y = Placeholder(p->root.WithOpName("y"), kFloat, PartialShape({-1, 10}));
    const Output logits = std::string(of.model) == "mlp" ? Mlp(s, x) : Cnn(s, x);
    const Output loss = ReduceMean(s, SoftmaxCrossEntropy(s, logits, y));
    const Variable step = GlobalStep(p->root);  // on the host: a reference
    auto made = OptimizerByName(of.optimizer, 0.05f);
    EXPECT_TRUE(made.ok()) << made.status();
    const auto train = (*made)->Minimize(s, loss, &step);
    EXPECT_TRUE(train.ok()) << train.status();
    const Operation init = InitializeVariables(p->root);
    Open(of.fuses);
    p->RunTargets({init});
    Trained trained;
    for (int i = 0; i < kSteps; ++i) {
      const auto values = p->Run({{x, Noise({4, 64}, 77 + i)}, {y, Labels(4)}}, {loss}, {*train});
      EXPECT_TRUE(values.ok()) << values.status();
      if (!values.ok()) return trained;
      trained.values.push_back((*values)[0]);
      if (i + 1 == kWarmSteps) {
        EXPECT_TRUE(cache.WaitUntilIdle());
      }
    }
    trained.report = TheLaunched();
    trained.reasons = Reasons();
    for (const Variable& v : Variables(p->graph)) trained.values.push_back(p->Eval(v.read));
    unsetenv("MILLRACE_CAPTURE");
    return trained;
  }
};

INSTANTIATE_TEST_SUITE_P(Kinds, CaptureTrainingTest, ::testing::ValuesIn(AcceleratorKinds()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(CaptureTrainingTest, WholeStepsAreOneLaunchWithTheBitsOfOrdinaryOnes) {
  for (const Training& of : {Training{"mlp", "sgd", true},
                             {"mlp", "momentum", true},
                             {"mlp", "adam", true},
                             {"mlp", "sgd", false},
                             {"cnn", "sgd", true},
                             {"cnn", "momentum", true},
                             {"cnn", "adam", true},
                             {"cnn", "adam", false}}) {
    SCOPED_TRACE(StrCat(of.model, ", ", of.optimizer, of.fuses ? ", fused" : ""));
    const int requested = cache.counts().requested;
    const Trained ordinary = Train(of, false);
    EXPECT_EQ(cache.counts().requested > requested, of.fuses);
    EXPECT_EQ(cache.counts().failed, 0);
    EXPECT_EQ(ordinary.report.launched_steps, 0);
    const Trained captured = Train(of, true);
    // Of the loss, the gradients and the updates nothing is left to the executor: there is one
    // program, and once loops are compiled all its steps are launched.
    if (of.fuses) {
      EXPECT_GE(captured.report.launched_steps, kSteps - kWarmSteps) << captured.reasons;
    } else {
      EXPECT_EQ(captured.report.launched_steps, kSteps - 2) << captured.reasons;
    }
    EXPECT_EQ(captured.report.launched_steps + captured.report.ordinary_steps, kSteps);
    EXPECT_EQ(captured.report.recordings, 1);
    EXPECT_GT(captured.report.recorded_operations, 15);
    ASSERT_EQ(captured.values.size(), ordinary.values.size());
    for (std::size_t i = 0; i < captured.values.size(); ++i) {
      EXPECT_TRUE(TensorsEqual(captured.values[i], ordinary.values[i]))
          << i << ": " << captured.values[i].DebugString() << " and "
          << ordinary.values[i].DebugString();
    }
  }
}

}  // namespace
}  // namespace millrace::testing
