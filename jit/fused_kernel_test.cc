// SPDX-License-Identifier: Apache-2.0
// What a fused node computes is what its parts compute, bit for bit.
#include "jit/fused_kernel.h"

#include "base/strings.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "jit/code_cache.h"
#include "jit/fused_test_util.h"

namespace millrace::jit {
namespace {

using ::testing::HasSubstr;

const std::vector<Shape>& Shapes() {
  static const auto* const shapes = new std::vector<Shape>{
      Shape({}),        Shape({0}),          Shape({1}),       Shape({7}),       Shape({64}),
      Shape({3, 5}),    Shape({1, 9}),       Shape({1000}),    Shape({4, 0, 3}), Shape({17, 33}),
      Shape({130, 10}), Shape({2, 3, 4, 5}), Shape({9, 2050}), Shape({40000}),   Shape({5, 9000})};
  return *shapes;
}

class FusedKernelTest : public testing::TestWithParam<int> {
 protected:
  FusedKernelTest() : runner_(GetParam()) { CodeCache::ReplaceGlobalForTest(&interpreted_); }
  ~FusedKernelTest() override { CodeCache::ReplaceGlobalForTest(nullptr); }

  std::vector<Tensor> Run(const FusedProgram& program, const std::vector<Tensor>& inputs,
                          bool last_reader = false) {
    const auto kernel = runner_.MakeKernel(program, inputs);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    if (!kernel.ok()) return {};
    const auto values = runner_.Run(kernel->get(), program, inputs, last_reader);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.value_or(std::vector<Tensor>());
  }
  Status Error(const std::string& text, const std::vector<Tensor>& inputs) {
    std::vector<DataType> in_types;
    for (const Tensor& input : inputs) in_types.push_back(input.dtype());
    const auto program = ParseFusedProgram(text, in_types, std::vector<DataType>{kFloat});
    if (!program.ok()) return program.status();
    const auto kernel = runner_.MakeKernel(*program, inputs);
    if (!kernel.ok()) return kernel.status();
    return runner_.Run(kernel->get(), *program, inputs, false).status();
  }

  CodeCache interpreted_{JitOptions{.enabled = false}};
  FusedRunner runner_;
};

TEST_P(FusedKernelTest, RandomProgramsComputeWhatTheirPartsDo) {
  for (int seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const Shape& shape = Shapes()[seed % Shapes().size()];
    const RandomCase c = MakeRandomCase(random, shape);
    SCOPED_TRACE(
        StrCat("seed ", seed, ", ", shape.DebugString(), ": ", FormatFusedProgram(c.program)));
    const auto expected = runner_.RunUnfused(c.program, c.inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(Difference(Run(c.program, c.inputs), *expected), "");
    EXPECT_EQ(Difference(Run(c.program, c.inputs, true), *expected), "") << "in place";
    if (HasFailure()) break;
  }
}

TEST_P(FusedKernelTest, AnOutputTakesTheMemoryOfAnInputThatNobodyElseHas) {
  const auto program =
      ParseFusedProgram("Neg:float i0; Exp:float t0 > t1", std::vector<DataType>{kFloat},
                        std::vector<DataType>{kFloat});
  ASSERT_TRUE(program.ok());
  const Tensor x = Tensor::FromValues<float>({1, 2, 3});
  EXPECT_NE(Run(*program, {x})[0].raw_data(), x.raw_data());
  EXPECT_EQ(x.data<float>()[2], 3) << "an input that others read was overwritten";
}

TEST_P(FusedKernelTest, WhatRepeatsInOtherWaysIsComputedNodeByNode) {
  const auto program = ParseFusedProgram("Mul:float i0 i1; Tanh:float t0 > t0 t1",
                                         std::vector<DataType>{kFloat, kFloat},
                                         std::vector<DataType>{kFloat, kFloat});
  ASSERT_TRUE(program.ok());
  const std::vector<Tensor> inputs = {Tensor::FromValues<float>({1, 2, 3, 4, 5, 6}, Shape({2, 3})),
                                      Tensor::FromValues<float>({10, 20}, Shape({2, 1}))};
  const auto values = Run(*program, inputs);
  EXPECT_EQ(values[0].data<float>()[5], 120);
  EXPECT_EQ(Difference(values, *runner_.RunUnfused(*program, inputs)), "");
}

TEST_P(FusedKernelTest, AWrongShapeIsToldAsTheNodeWouldHaveToldIt) {
  const Status status =
      Error("Exp:float i0; AddV2:float t0 i1; Neg:float t1 > t2",
            {Tensor::FromValues<float>({1, 2}), Tensor::FromValues<float>({1, 2, 3})});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Incompatible shapes: [2] vs. [3]"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("{{node node1}}"));
}

TEST_P(FusedKernelTest, TextThatIsNoProgramIsRefused) {
  const std::vector<Tensor> x = {Tensor::FromValues<float>({1, 2})};
  for (const char* text : {"",
                           ">",
                           "> t0",
                           "Exp:float i0",
                           "Exp:float i0 > t1",
                           "Exp:float i0 > i0",
                           "Exp:float > t0",
                           "Exp:float i1 > t0",
                           "Exp:float t0 > t0",
                           "Exp:float i-1 > t0",
                           "Exp:float i0 i0 > t0",
                           "Exp:int32 i0 > t0",
                           "Exp:double i0 > t0",
                           "Exp:bool i0 > t0",
                           "Fly:float i0 > t0",
                           "Exp:float x0 > t0",
                           "Less:float i0 i0 > t0",
                           "Cast:float i0 > t0",
                           "Cast:float>int32 i0 > t0",
                           "Exp:float i0 > t0 t0",
                           "Exp:float i99999999999 > t0"}) {
    SCOPED_TRACE(text);
    EXPECT_EQ(Error(text, x).code(), StatusCode::kInvalidArgument);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, FusedKernelTest, testing::Values(0, 1),
                         [](const auto& info) { return StrCat("Beside", info.param); });

}  // namespace
}  // namespace millrace::jit
