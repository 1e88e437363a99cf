// SPDX-License-Identifier: Apache-2.0
// Sessions that use a GPU at the same time: each computes what it computes alone, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "millrace/ops.h"
#include "tests/device_conformance/program.h"
#include "tests/gpu/gpus.h"
#include "tests/gpu/own_process.h"

namespace millrace::testing {
namespace {

// What algorithms of libraries compute is the same every time with this.
const OwnProcess kDeterministic{.environment = {{"TF_DETERMINISTIC_OPS", "1"}}};

// From -1 to 1.
Tensor Noise(const Shape& shape, uint32_t seed) {
  Tensor t(kFloat, shape);
  for (float& x : t.flat<float>()) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(seed >> 8) / (1 << 23) - 1;
  }
  return t;
}

// One user of the GPU, who trains a net of its own width on data of its own.
struct User {
  explicit User(uint32_t seed) : width(24 + 8 * seed), seed(seed) {}

  // Losses of all steps, then the weights.
  std::vector<Tensor> Train(int steps) const {
    Program p("GPU");
    p.devices = 1;
    p.config.mutable_gpu_options()->set_allow_growth(true);
    const Scope& s = p.device;
    const auto weights = [&](const char* name, const Shape& shape) {
      Tensor values = Noise(shape, seed + static_cast<uint32_t>(shape.dim(0)));
      for (float& value : values.flat<float>()) value *= 0.2f;
      return MakeVariable(s, name, Constant(s, values), {.use_resource = true}).read;
    };
    const Output x = Placeholder(p.root, kFloat, PartialShape({-1, 8, 8, 1}));
    const Output y = Placeholder(p.root, kFloat, PartialShape({-1, 4}));
    const Output seen =
        ops::Relu(s, ops::Conv2D(s, x, weights("filter", {3, 3, 1, 4}), {1, 1, 1, 1}, "SAME"));
    const Output rows = ops::Reshape(s, seen, {-1, 256});
    const Output hidden = ops::Tanh(s, ops::MatMul(s, rows, weights("one", {256, width})));
    const Output logits = ops::MatMul(s, hidden, weights("two", {width, 4}));
    const Output loss = ReduceMean(s, SoftmaxCrossEntropy(s, logits, y));
    const Variable step = GlobalStep(p.root);
    auto made = OptimizerByName("adam", 0.01f);
    EXPECT_TRUE(made.ok()) << made.status();
    const auto train = (*made)->Minimize(s, loss, &step);
    EXPECT_TRUE(train.ok()) << train.status();
    const Operation init = InitializeVariables(p.root);
    p.Open();
    if (p.session == nullptr) return {};
    p.RunTargets({init});
    std::vector<Tensor> values;
    for (int i = 0; i < steps; ++i) {
      constexpr int64_t kBatch = 16;
      Tensor labels(kFloat, {kBatch, 4});
      for (int64_t k = 0; k < labels.num_elements(); ++k) {
        labels.data<float>()[k] = k % 4 == k / 4 % 4 ? 1 : 0;
      }
      const auto ran = p.Run(
          {{x, Noise({kBatch, 8, 8, 1}, seed * 1000 + static_cast<uint32_t>(i))}, {y, labels}},
          {loss}, {*train});
      EXPECT_TRUE(ran.ok()) << ran.status();
      if (!ran.ok()) return {};
      values.push_back((*ran)[0]);
    }
    for (const Variable& v : Variables(p.graph)) values.push_back(p.Eval(v.read));
    return values;
  }

  int64_t width;
  uint32_t seed;
};

// The first value that differs, "" if none does.
std::string Difference(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  if (got.size() != want.size()) return StrCat(got.size(), " values, not ", want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i].num_bytes() != want[i].num_bytes()) return StrCat("the size of value ", i);
    if (std::memcmp(got[i].raw_data(), want[i].raw_data(), got[i].num_bytes()) != 0) {
      return StrCat("the bits of value ", i);
    }
  }
  return "";
}

class SharingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(GpusForTests().obstacle, "");
    UseTestKernels();
  }
};

TEST_F(SharingTest, SessionsThatTrainAtOnceGetTheBitsThatTheyGetAlone) {
  if (!InOwnProcess(kDeterministic)) return;
  constexpr int kSteps = 40, kUsers = 3;
  std::vector<std::vector<Tensor>> alone;
  for (uint32_t u = 0; u < kUsers; ++u) {
    alone.push_back(User(u).Train(kSteps));
    ASSERT_GE(alone.back().size(), kSteps + 3u);
    const float first = alone.back()[0].data<float>()[0];
    const float last = alone.back()[kSteps - 1].data<float>()[0];
    EXPECT_TRUE(std::isfinite(last) && last != first) << first << " to " << last;
  }
  EXPECT_NE(Difference(alone[0], alone[1]), "") << "users that differ in nothing show nothing";
  // The last user is there twice.
  std::vector<std::vector<Tensor>> together(kUsers + 1);
  std::vector<std::thread> users;
  for (uint32_t u = 0; u <= kUsers; ++u) {
    users.emplace_back([&, u] { together[u] = User(std::min(u, kUsers - 1u)).Train(kSteps); });
  }
  for (std::thread& user : users) user.join();
  for (uint32_t u = 0; u <= kUsers; ++u) {
    EXPECT_EQ(Difference(together[u], alone[std::min(u, kUsers - 1u)]), "") << "user " << u;
  }
}

}  // namespace
}  // namespace millrace::testing
