// SPDX-License-Identifier: Apache-2.0
// A session gives the same values whether elementwise nodes are fused or not.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/strings.h"
#include "gtest/gtest.h"
#include "jit/code_cache.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "proto/graph.pb.h"

namespace millrace {
namespace {

// A layer forwards and backwards, with values fetched from the middle of what is fused.
struct Model {
  Model() {
    const Scope s = graph.root();
    x = Placeholder(s, kFloat, {});
    w = ops::Const(s, Ramp({37, 50}, 0.01f), kFloat);
    const Output bias = ops::Const(s, Ramp({50}, 0.1f), kFloat);
    const Output half = ops::Const(s, Tensor::Scalar<float>(0.5f), kFloat);
    const Output sum = ops::Add(s, ops::MatMul(s, x, w), bias);
    const Output active = ops::Tanh(s, ops::Mul(s, sum, half));
    const Output gate = ops::Sigmoid(s, ops::Sub(s, active, bias));
    const Output y = ops::Mul(s, active, ops::Relu(s, gate));
    const Output back = ops::TanhGrad(s, active, ops::Square(s, y));
    const Output chosen = ops::SelectV2(s, ops::Less(s, y, back), y, ops::Neg(s, back));
    const Output total = ops::AddN(s, std::vector<Input>{chosen, y, gate});
    const auto axes = [&](std::initializer_list<int32_t> values) {
      return ops::Const(s, Tensor::FromValues<int32_t>(values), kInt32);
    };
    const Output squared = ops::Square(s, ops::Sub(s, sum, half));
    fetches = {y, gate, total, ops::MatMul(s, total, ops::Const(s, Ramp({50, 3}, 0.2f), kFloat)),
               // Reductions over the last axis, over all, over the first one, and of one op alone.
               ops::Sum(s, squared, axes({1})),
               ops::Mean(s, ops::Square(s, ops::Sub(s, sum, bias)), axes({0, 1})),
               ops::Sum(s, ops::Neg(s, ops::Square(s, sum)), axes({0})),
               ops::Max(s, ops::Exp(s, sum), axes({-1}), {.keep_dims = true}),
               ops::Min(s, ops::Mul(s, ops::Neg(s, sum), half), axes({}))};
  }
  static Tensor Ramp(std::vector<int64_t> dims, float step) {
    Tensor tensor(kFloat, *MakeShape(dims));
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      tensor.data<float>()[i] = step * static_cast<float>(i % 41 - 20);
    }
    return tensor;
  }
  Graph graph;
  Output x, w;
  std::vector<Output> fetches;
};

struct Ran {
  std::vector<Tensor> values;
  int fused = 0;  // nodes
};

Ran RunModel(bool fuse, int threads, int rows, int steps) {
  setenv("MILLRACE_FUSION", fuse ? "on" : "off", 1);
  Model model;
  Ran ran;
  auto session = Session::Create(model.graph, {.intra_op_threads = threads});
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return ran;
  const std::vector<Feed> feeds = {{model.x, Model::Ramp({rows, 37}, 0.05f)}};
  RunMetadata metadata;
  for (int i = 0; i < steps; ++i) {
    auto values =
        session->Run(feeds, model.fetches, {}, RunOptions{.partition_graphs = true}, &metadata);
    EXPECT_TRUE(values.ok()) << values.status();
    if (values.ok()) ran.values = *std::move(values);
  }
  for (const std::string& text : metadata.partition_graphs) {
    pb::GraphDef graph;
    EXPECT_TRUE(graph.ParseFromString(text));
    for (const auto& node : graph.node()) ran.fused += node.op() == "_Fused" ? 1 : 0;
  }
  return ran;
}

void ExpectSameBits(const Ran& a, const Ran& b) {
  ASSERT_EQ(a.values.size(), b.values.size());
  ASSERT_FALSE(a.values.empty());
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    ASSERT_TRUE(a.values[i].shape() == b.values[i].shape());
    EXPECT_EQ(std::memcmp(a.values[i].raw_data(), b.values[i].raw_data(), a.values[i].num_bytes()),
              0)
        << "fetch " << i;
  }
}

TEST(FusionTest, ValuesAreTheSameBits) {
  for (const int rows : {1, 3, 200, 2000}) {
    for (const int threads : {-1, 1}) {
      SCOPED_TRACE(StrCat(rows, " rows, ", threads, " threads"));
      const Ran with = RunModel(true, threads, rows, 2),
                without = RunModel(false, threads, rows, 2);
      EXPECT_GE(with.fused, 1);
      EXPECT_EQ(without.fused, 0);
      ExpectSameBits(with, without);
    }
  }
}

TEST(FusionTest, ValuesStayTheSameWhenTheCompiledLoopTakesOver) {
  jit::CodeCache cache({.library = "jit/libmillrace_jit.so", .least_work = 1, .nice = 0});
  jit::CodeCache::ReplaceGlobalForTest(&cache);
  static_cast<void>(RunModel(true, 1, 60, 1));
  EXPECT_TRUE(cache.WaitUntilIdle());
  EXPECT_GE(cache.counts().compiled, 1);
  const Ran with = RunModel(true, 1, 60, 1), without = RunModel(false, 1, 60, 1);
  ExpectSameBits(with, without);
  jit::CodeCache::ReplaceGlobalForTest(nullptr);
}

}  // namespace
}  // namespace millrace
