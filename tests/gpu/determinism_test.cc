// SPDX-License-Identifier: Apache-2.0
// Deterministic mode on a GPU: a training run that is made twice ends with the same bits, through
// cuDNN, cuBLASLt and our own loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "millrace/core.h"
#include "millrace/gpu.h"
#include "millrace/ops.h"
#include "tests/device_conformance/program.h"
#include "tests/gpu/tensors.h"

namespace millrace::testing {
namespace {

class DeterminismTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto gpus = FindGpus();
    ASSERT_TRUE(gpus.ok()) << "no GPU: " << gpus.status();
    ASSERT_EQ(setenv("TF_DETERMINISTIC_OPS", "1", 1), 0);
  }
  void TearDown() override { unsetenv("TF_DETERMINISTIC_OPS"); }
};

Output Weights(const Scope& s, const std::string& name, const Shape& shape) {
  Tensor values = Random(kFloat, shape, static_cast<uint32_t>(shape.num_elements()));
  for (float& value : values.flat<float>()) value *= 0.1f;
  return MakeVariable(s, name, Constant(s, values), {.use_resource = true}).read;
}

// Logits of [batch, 16, 16, 3]: two convolutions in `type`, and a matrix.
Output Network(const Scope& s, const Output& x, DataType type) {
  const auto narrow = [&](const Output& value) { return ops::Cast(s, value, type); };
  const auto block = [&](const std::string& name, const Output& in, int64_t from, int64_t to) {
    const Output filter = narrow(Weights(s, name + "_w", {3, 3, from, to}));
    const Output made = ops::Conv2D(s, in, filter, {1, 1, 1, 1}, "SAME");
    const Output biased = ops::BiasAdd(s, made, narrow(Weights(s, name + "_b", {to})));
    return ops::MaxPool(s, ops::Relu(s, biased), {1, 2, 2, 1}, {1, 2, 2, 1}, "SAME");
  };
  const Output pooled = block("two", block("one", narrow(x), 3, 32), 32, 64);
  const Output rows = ops::Cast(s, ops::Reshape(s, pooled, {-1, 1024}), kFloat);
  return ops::BiasAdd(s, ops::MatMul(s, rows, Weights(s, "three_w", {1024, 10})),
                      Weights(s, "three_b", {10}));
}

// Losses of all steps, then what the variables are.
std::vector<Tensor> Train(DataType type) {
  constexpr int kSteps = 20, kBatch = 64;
  Program p("GPU");
  p.devices = 1;
  const Scope& s = p.device;
  const Output x = Placeholder(p.root, kFloat, PartialShape({-1, 16, 16, 3}));
  const Output y = Placeholder(p.root, kFloat, PartialShape({-1, 10}));
  const Output loss = ReduceMean(s, SoftmaxCrossEntropy(s, Network(s, x, type), y));
  const Variable step = GlobalStep(p.root);
  auto made = OptimizerByName("momentum", 0.05f);
  EXPECT_TRUE(made.ok()) << made.status();
  const auto train = (*made)->Minimize(s, loss, &step);
  EXPECT_TRUE(train.ok()) << train.status();
  const Operation init = InitializeVariables(p.root);
  p.Open();
  p.RunTargets({init});
  std::vector<Tensor> values;
  for (uint32_t i = 0; i < kSteps; ++i) {
    Tensor labels(kFloat, {kBatch, 10});
    std::fill_n(labels.data<float>(), labels.num_elements(), 0.0f);
    for (int64_t row = 0; row < kBatch; ++row) labels.data<float>()[row * 10 + row % 10] = 1;
    const auto ran =
        p.Run({{x, Random(kFloat, {kBatch, 16, 16, 3}, i + 1)}, {y, labels}}, {loss}, {*train});
    EXPECT_TRUE(ran.ok()) << ran.status();
    if (!ran.ok()) return {};
    values.push_back((*ran)[0]);
  }
  for (const Variable& v : Variables(p.graph)) values.push_back(p.Eval(v.read));
  ExpectNothingLeft(p);
  return values;
}

TEST_F(DeterminismTest, TrainingTwiceGivesTheSameWeights) {
  for (const DataType type : {kFloat, kBfloat16}) {
    SCOPED_TRACE(DataTypeName(type));
    const std::vector<Tensor> first = Train(type), second = Train(type);
    ASSERT_GT(first.size(), 20u);
    ASSERT_EQ(first.size(), second.size());
    const float begin = first[0].data<float>()[0], end = first[19].data<float>()[0];
    EXPECT_TRUE(std::isfinite(end) && end != begin) << begin << " to " << end;
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(SameBits(first[i], second[i])) << "value " << i;
    }
  }
}

}  // namespace
}  // namespace millrace::testing
