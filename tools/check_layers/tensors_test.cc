// SPDX-License-Identifier: Apache-2.0
// Tensors that data sizes are met, and those that are written out are not.

#include "tools/check_layers/tensors.h"

#include <string>

#include <gtest/gtest.h>

namespace millrace::layers {
namespace {

std::size_t Count(const std::string& path, const std::string& text) {
  return CheckTensors({{path, text}}).size();
}

TEST(TensorsTest, ATensorSizedByDataIsMet) {
  EXPECT_EQ(Count("kernels/a.cc", "Tensor out(dtype, Shape({n}));\n"), 1u);
  EXPECT_EQ(Count("io/a.cc", "x = Tensor(kString,\n           shape);\n"), 1u);
  EXPECT_EQ(Count("worker/a.cc", "return Tensor(allocator, type, Shape(dims));\n"), 1u);
  EXPECT_EQ(Count("training/a.cc", "Tensor out(dtype, Shape({n}));\n"), 0u);
  EXPECT_EQ(Count("kernels/a_test.cc", "Tensor out(dtype, Shape({n}));\n"), 0u);
}

TEST(TensorsTest, SizesThatAreWrittenOutAndBoundsThatAreSaidAreNot) {
  EXPECT_EQ(Count("kernels/a.cc", "Tensor out(kFloat, Shape({2, 3}));\n"), 0u);
  EXPECT_EQ(Count("kernels/a.cc", "Tensor none(kFloat, Shape());\nTensor x(kFloat, {0});\n"), 0u);
  EXPECT_EQ(Count("kernels/a.cc", "// Bounded: by the file.\nTensor out(dtype, shape);\n"), 0u);
  EXPECT_EQ(Count("kernels/a.cc", "Tensor out(dtype, shape);  // Bounded: by the file.\n"), 0u);
  EXPECT_EQ(Count("kernels/a.cc", "// By the file.\nTensor out(dtype, shape);\n"), 1u);
}

TEST(TensorsTest, DeclarationsAndSharesAreNot) {
  EXPECT_EQ(Count("kernels/a.cc", "Tensor Cut(const Tensor& whole, int64_t row);\n"), 0u);
  EXPECT_EQ(Count("kernels/a.h", "Tensor locked_input(int i) const;\n"), 0u);
  EXPECT_EQ(Count("kernels/a.cc", "Tensor part(dtype, shape, std::move(buffer), data);\n"), 0u);
}

TEST(TensorsTest, AShapeThatMayBeNoneIsAskedFirst) {
  EXPECT_EQ(Count("kernels/a.cc", "const Shape s = *shapes_[i].AsShape();\n"), 1u);
  EXPECT_EQ(Count("kernels/a.cc", "if (const auto s = shape.AsShape()) Use(*s);\n"), 0u);
}

TEST(TensorsTest, StepsRunKernelsWhereExceptionsEnd) {
  EXPECT_EQ(Count("executor/a.cc", "status = node.kernel->Compute(ctx);\n"), 1u);
  EXPECT_EQ(Count("executor/a.cc", "kernel->ComputeAsync(*ctx, done);\n"), 1u);
  EXPECT_EQ(Count("executor/a.cc", "status = RunKernel(node.kernel, ctx);\n"), 0u);
  EXPECT_EQ(Count("kernels/a.cc", "inner->kernel->Compute(ctx);\n"), 0u);
}

}  // namespace
}  // namespace millrace::layers
