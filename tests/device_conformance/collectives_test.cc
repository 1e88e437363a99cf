// SPDX-License-Identifier: Apache-2.0
// Collectives between devices with memory of their own, which have no links: through the host.
#include <gtest/gtest.h>

#include <string>

#include "base/errors.h"
#include "base/strings.h"
#include "tests/device_conformance/program.h"
#include "tests/device_conformance/simulated_gpus.h"

namespace millrace::testing {
namespace {

[[maybe_unused]] const bool prepared = (UseSimulatedGpus(), true);

Tensor Counting(int64_t count, float first) {
  Tensor t(kFloat, Shape({count}));
  for (int64_t i = 0; i < count; ++i) t.data<float>()[i] = first + static_cast<float>(i);
  return t;
}

Output Add(const Scope& scope, const char* op, const std::vector<Input>& inputs,
           std::vector<std::pair<std::string, AttrValue>> attrs) {
  return Output(scope.AddOp(op, inputs, attrs, std::source_location::current()), 0);
}

Output Reduce(const Scope& scope, const Output& value, const char* final) {
  return Add(scope, "CollectiveReduce", {value},
             {{"group_size", int64_t{2}},
              {"group_key", int64_t{1}},
              {"instance_key", int64_t{1}},
              {"merge_op", std::string("Add")},
              {"final_op", std::string(final)},
              {"subdiv_offsets", std::vector<int64_t>{0}}});
}

class CollectivesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CollectivesTest, ReduceGatherAndBroadcast) {
  Program program(GetParam());
  std::vector<Output> fetches;
  for (int i = 0; i < 2; ++i) {
    const Scope device = program.On(i);
    const Output value = ops::AddV2(device, Constant(device, Counting(20, static_cast<float>(i))),
                                    Constant(device, Counting(20, 1)));
    // What was computed on the device, and what goes on there.
    fetches.push_back(ops::Neg(device, Reduce(device, value, "Div")));
    fetches.push_back(ops::Neg(device, Add(device, "CollectiveGather", {value},
                                           {{"group_size", int64_t{2}},
                                            {"group_key", int64_t{1}},
                                            {"instance_key", int64_t{2}},
                                            {"shape", PartialShape({40})}})));
    // The keys and the shape of these stay in host memory.
    if (i == 1) {
      const std::vector<Input> inputs = {value, 2, 1, 3};
      fetches.push_back(ops::Neg(device, Add(device, "CollectiveBcastSendV2", inputs, {})));
    } else {
      std::vector<Input> inputs = {2, 1, 3};
      inputs.emplace_back(std::initializer_list<int32_t>{20});
      fetches.push_back(
          ops::Neg(device, Add(device, "CollectiveBcastRecvV2", inputs, {{"T", kFloat}})));
    }
  }
  program.Open();
  for (int step = 0; step < 3; ++step) {
    const auto values = program.Run({}, fetches);
    ASSERT_TRUE(values.ok()) << values.status();
    for (int i = 0; i < 2; ++i) {
      for (int k = 0; k < 20; ++k) {
        const auto element = static_cast<float>(2 * k);
        ASSERT_EQ(values->at(3 * i).data<float>()[k], -(element + 1.5f));
        ASSERT_EQ(values->at(3 * i + 1).data<float>()[k], -(element + 1));
        ASSERT_EQ(values->at(3 * i + 1).data<float>()[20 + k], -(element + 2));
        ASSERT_EQ(values->at(3 * i + 2).data<float>()[k], -(element + 2));
      }
    }
  }
}

TEST_P(CollectivesTest, OfAMissingMemberEndWithTheStep) {
  Program program(GetParam());
  const Scope device = program.On(0);
  const Output sum = Reduce(device, Constant(device, Counting(5, 0)), "Id");
  program.Open();
  const auto values = program.Run({}, {sum}, {}, std::chrono::milliseconds(300));
  EXPECT_EQ(values.status().code(), StatusCode::kDeadlineExceeded) << values.status();
}

INSTANTIATE_TEST_SUITE_P(Devices, CollectivesTest, ::testing::Values("FAKE", "GPU"));

}  // namespace
}  // namespace millrace::testing
