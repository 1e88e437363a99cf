// SPDX-License-Identifier: Apache-2.0
// What is settled only once the device has run: outputs whose sizes it counts, and whether an
// assignment by reference holds. By the loops that GPUs run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "tests/device_conformance/golden_device.h"
#include "tests/device_conformance/program.h"

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;

template <typename T>
Tensor Vector(const std::vector<T>& values) {
  return Tensor::FromValues<T>(std::span<const T>(values),
                               Shape({static_cast<int64_t>(values.size())}));
}

class DeviceTest : public ::testing::Test {
 protected:
  DeviceTest() : p("FAKE") { p.config.set_allow_soft_placement(false); }
  void SetUp() override { ASSERT_EQ(PrepareGoldenDevice(), ""); }
  ~DeviceTest() override { ExpectNothingLeft(p); }

  Operation Add(const Scope& s, const std::string& op, const std::vector<Output>& inputs,
                std::vector<std::pair<std::string, AttrValue>> attrs = {}) {
    const std::vector<Input> given(inputs.begin(), inputs.end());
    return s.AddOp(op, given, std::move(attrs), std::source_location::current());
  }
  Program p;
};

// Distinct elements of what the device computes, and what it computes of them.
class CountingTest : public DeviceTest {
 protected:
  CountingTest() {
    x = Placeholder(p.root, kFloat, PartialShape({-1}));
    const Output on_device = ops::Neg(p.device.WithOpName("first"), x);
    const Operation unique = Add(p.device.WithOpName("unique"), "UniqueWithCounts", {on_device});
    last = ops::Neg(p.device.WithOpName("last"), unique.output(0));
    // Together again.
    again = ops::Neg(p.device, ops::Gather(p.device, unique.output(0), unique.output(1)));
    w = MakeVariable(p.device, "w", Constant(p.device, Tensor::FromValues<float>({1, 1})),
                     {.use_resource = true});
    train = AssignAdd(p.device, w, last);
    const Operation init = InitializeVariables(p.root);
    p.Open();
    p.RunTargets({init});
  }
  StatusOr<std::vector<Tensor>> Run(const std::vector<float>& values,
                                    std::chrono::milliseconds limit = {}) {
    return p.Run({{x, Vector(values)}}, {last, again}, {}, limit);
  }
  Output x, last, again;
  Variable w;
  Operation train;
};

TEST_F(CountingTest, SizesFollowValues) {
  for (const std::vector<float>& values :
       {std::vector<float>{3, 1, 3}, {2}, {5, 5, 5, 5}, {}, {4, 3, 2, 1, 0, -1}}) {
    const auto results = Run(values);
    ASSERT_TRUE(results.ok()) << results.status();
    std::vector<float> distinct;
    for (const float value : values) {
      if (std::find(distinct.begin(), distinct.end(), value) == distinct.end()) {
        distinct.push_back(value);
      }
    }
    EXPECT_TRUE(TensorsEqual((*results)[0], Vector(distinct)));
    EXPECT_TRUE(TensorsEqual((*results)[1], Vector(values)));
  }
}

TEST_F(CountingTest, UpdatesComeAfterwards) {
  const auto run = [&](const std::vector<float>& values) {
    return p.Run({{x, Vector(values)}}, {}, {train}).status();
  };
  EXPECT_TRUE(run({2, 3, 2}).ok());
  EXPECT_TRUE(TensorsEqual(p.Eval(w.read), Tensor::FromValues<float>({3, 4})));
  // Known only then: three do not fit a variable of two.
  EXPECT_FALSE(run({1, 2, 3}).ok());
  EXPECT_TRUE(TensorsEqual(p.Eval(w.read), Tensor::FromValues<float>({3, 4})));
}

TEST_F(CountingTest, EndsWithItsStep) {
  p.machine()->CloseGate("unique");
  const auto values = Run({1, 2, 1}, std::chrono::milliseconds(300));
  EXPECT_TRUE(errors::IsDeadlineExceeded(values.status())) << values.status();
  p.machine()->OpenGate("unique");
  EXPECT_TRUE(Run({1, 2, 1}).ok());
}

TEST_F(CountingTest, GivesTheErrorOfWhatItCountsInstead) {
  p.machine()->FailNext("first", errors::DataLoss("cosmic ray"));
  const Status status = Run({1, 2, 1}).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("{{node first}}"));
  EXPECT_TRUE(Run({1, 2, 1}).ok());
}

TEST_F(DeviceTest, PartitionsAreStitchedTogetherAgain) {
  const Output x = Placeholder(p.root, kFloat, PartialShape({-1, 2}));
  const Output which = Placeholder(p.root, kInt32, PartialShape({-1}));
  const Output numbers = Placeholder(p.root, kInt32, PartialShape({-1}));
  const AttrValue three = int64_t{3};
  const Operation rows = Add(p.device, "DynamicPartition", {x, which}, {{"num_partitions", three}});
  const Operation at =
      Add(p.device, "DynamicPartition", {numbers, which}, {{"num_partitions", three}});
  const Output whole = ops::DynamicStitch(p.device, {at.output(0), at.output(1), at.output(2)},
                                          {rows.output(0), rows.output(1), rows.output(2)});
  p.Open();
  const Tensor values = Tensor::FromValues<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, Shape({5, 2}));
  for (const std::vector<int32_t>& parts :
       {std::vector<int32_t>{2, 0, 2, 1, 0}, {1, 1, 1, 1, 1}, {2, 1, 0, 2, 2}}) {
    const auto results = p.Run({{x, values},
                                {which, Vector(parts)},
                                {numbers, Tensor::FromValues<int32_t>({0, 1, 2, 3, 4})}},
                               {whole, rows.output(2)});
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_TRUE(TensorsEqual((*results)[0], values));
    EXPECT_EQ((*results)[1].dim(0), std::count(parts.begin(), parts.end(), 2));
  }
}

TEST_F(DeviceTest, AssignmentsByReferenceOfValuesThatNeverCameAreTakenBack) {
  const Output x = Placeholder(p.root, kFloat, {2});
  const Variable v = MakeVariable(p.device, "v", ops::Neg(p.device.WithOpName("value"), x), {});
  const Output known = Add(p.device, "IsVariableInitialized", {v.handle}).output(0);
  p.Open();
  const Tensor value = Tensor::FromValues<float>({1, 2});
  p.machine()->FailNext("value", errors::DataLoss("cosmic ray"));
  EXPECT_EQ(p.Run({{x, value}}, {}, {v.initializer}).status().code(), StatusCode::kDataLoss);
  EXPECT_TRUE(Eventually([&] { return !p.Eval(known).scalar<bool>(); }));
  ASSERT_TRUE(p.Run({{x, value}}, {}, {v.initializer}).ok());
  EXPECT_TRUE(TensorsEqual(p.Eval(v.read), Tensor::FromValues<float>({-1, -2})));
}

}  // namespace
}  // namespace millrace::testing
