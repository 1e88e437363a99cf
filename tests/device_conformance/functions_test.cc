// SPDX-License-Identifier: Apache-2.0
// Functions whose bodies ask for a device, put into the graph and run by a kernel.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "millrace/core.h"
#include "tests/device_conformance/program.h"
#include "tests/functions/function_text.h"

namespace millrace::testing {
namespace {

constexpr char kDevice[] = "/device:FAKE:0", kOther[] = "/device:FAKE:1";

// y = tanh(x * x) + x, here and there.
std::string Body(const std::string& more) {
  return FunctionText("Step", {"x"}, {{"y", "sum:z:0"}},
                      BodyNode("square", "Mul", {"x", "x"}, FloatT(), kDevice) +
                          BodyNode("tanh", "Tanh", {"square:z:0"}, FloatT(), "/device:CPU:0") +
                          BodyNode("sum", "AddV2", {"tanh:y:0", "x"}, FloatT(), kOther),
                      more);
}

class FunctionsOnDeviceTest : public ::testing::TestWithParam<bool> {
 protected:
  FunctionsOnDeviceTest() : p("FAKE") {}
  void Open(const std::string& text, int threads) {
    pb::GraphDef def;
    ASSERT_TRUE(ParseGraph(text, &def)) << text;
    const Status imported = p.graph.ImportGraphDef(def.SerializeAsString());
    ASSERT_TRUE(imported.ok()) << imported;
    p.Open(threads);
  }
  static std::string More() {
    return GetParam() ? " attr { key: '_noinline' value { b: true } }" : "";
  }
  Program p;
};
INSTANTIATE_TEST_SUITE_P(Ways, FunctionsOnDeviceTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "called" : "inlined"; });

TEST_P(FunctionsOnDeviceTest, ComputeWhereTheirNodesSay) {
  for (const int threads : {2, -1}) {
    Program q("FAKE");
    pb::GraphDef def;
    ASSERT_TRUE(ParseGraph(
        Body(More()) + GraphNode("c", "Placeholder", {}, Attr("dtype", "type: DT_FLOAT")) +
            GraphNode("call", "PartitionedCall", {"c"}, FloatLists(1, 1) + Func("f", "Step")) +
            GraphNode("again", "PartitionedCall", {"call"}, FloatLists(1, 1) + Func("f", "Step")),
        &def));
    ASSERT_TRUE(q.graph.ImportGraphDef(def.SerializeAsString()).ok());
    q.Open(threads);
    const Output fed = q.graph.FindOperation("c").output(0);
    const Output out = q.graph.FindOperation("again").output(0);
    for (int i = 0; i < 5; ++i) {
      const float x = 0.25f * static_cast<float>(i);
      const Tensor value = q.Eval(out, {{fed, Tensor::Scalar<float>(x)}});
      const float once = std::tanh(x * x) + x;
      EXPECT_NEAR(value.scalar<float>(), std::tanh(once * once) + once, 1e-5);
    }
    EXPECT_EQ(q.machine(0)->num_operations(), 10);
    EXPECT_EQ(q.machine(1)->num_operations(), 10);
  }
}

TEST_P(FunctionsOnDeviceTest, TellOfTheirNodesErrors) {
  Open(Body(More()) + FloatConst("node", "c", 21) +
           GraphNode("call", "PartitionedCall", {"c"}, FloatLists(1, 1) + Func("f", "Step")),
       2);
  const Output out = p.graph.FindOperation("call").output(0);
  p.machine(1)->FailNext("", Status(StatusCode::kDataLoss, "worn out"));
  const auto values = p.Run({}, {out});
  EXPECT_EQ(values.status().code(), StatusCode::kDataLoss) << values.status();
  EXPECT_NEAR(p.Eval(out).scalar<float>(), 22, 1e-5);
}

}  // namespace
}  // namespace millrace::testing
