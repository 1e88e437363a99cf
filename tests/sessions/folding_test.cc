// SPDX-License-Identifier: Apache-2.0
// What is known before a step is computed before it, as long as it is small.
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "millrace/control_flow.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

TEST(FoldingTest, AConstantThatIsTooLargeToBeKeptIsNotMade) {
  constexpr int32_t kFloats = 1 << 27;  // half a GiB
  Graph graph;
  const Scope root = graph.root();
  const Output asked = Placeholder(root, kBool, PartialShape({}));
  const std::vector<Output> sum = Cond(
      root, asked,
      [&](const Scope& s) {
        const Output many = ops::Fill(s, Constant(s, Tensor::FromValues<int32_t>({kFloats})),
                                      Constant(s, Tensor::Scalar<float>(1)));
        return std::vector<Output>{ops::Sum(s, many, Constant(s, Tensor::Scalar<int32_t>(0)))};
      },
      [&](const Scope& s) { return std::vector<Output>{Constant(s, Tensor::Scalar<float>(7))}; });
  ASSERT_EQ(sum.size(), 1u) << graph.status();
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  const int64_t before = HostAllocator()->stats().peak_bytes_in_use;
  const auto value = session->Run({{asked, Tensor::Scalar<bool>(false)}}, {sum[0]});
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ((*value)[0].scalar<float>(), 7);
  EXPECT_LT(HostAllocator()->stats().peak_bytes_in_use - before, int64_t{100} << 20);
}

}  // namespace
}  // namespace millrace
