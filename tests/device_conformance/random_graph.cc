// SPDX-License-Identifier: Apache-2.0
#include "tests/device_conformance/random_graph.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "millrace/ops.h"

namespace millrace::testing {
namespace {

constexpr int kNodes = 40;
constexpr int64_t kSize = 257;

}  // namespace

Tensor RandomGraphInput(int seed) {
  Tensor t(kFloat, {kSize});
  for (int64_t i = 0; i < kSize; ++i) {
    t.data<float>()[i] = static_cast<float>((i * 7 + seed) % 31) / 31.0f;
  }
  return t;
}

RandomGraph BuildRandomGraph(Program& p, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  const auto pick = [&random](std::size_t n) { return random() % n; };
  const auto anywhere = [&] {
    const std::size_t where = pick(3);
    return where == 2 ? p.host() : p.On(static_cast<int>(where));
  };
  RandomGraph built;
  built.fed = Placeholder(p.root, kFloat, {kSize});
  std::vector<Output> values{built.fed};
  for (int v = 0; v < 2; ++v) {
    built.variables.push_back(MakeVariable(anywhere(), StrCat("v", v),
                                           Constant(p.root, RandomGraphInput(seed + v)),
                                           {.use_resource = true}));
    values.push_back(built.variables.back().read);
  }
  for (int i = 0; i < kNodes; ++i) {
    const Scope s = anywhere();
    const Output a = values[pick(values.size())], b = values[pick(values.size())];
    switch (pick(7)) {
      case 0:
        values.push_back(ops::AddV2(s, a, b));
        break;
      case 1:
        values.push_back(ops::Sub(s, a, b));
        break;
      case 2:
        values.push_back(ops::Tanh(s, ops::Mul(s, a, b)));
        break;
      case 3:
        values.push_back(ops::Maximum(s, ops::Neg(s, a), b));
        break;
      case 4: {
        const Output table = ops::Reshape(s, a, Constant(s, Tensor::FromValues<int32_t>({1, -1})));
        const Output sum =
            ops::Sum(s, table, Constant(s, Tensor::FromValues<int32_t>({0})));  // of one row
        values.push_back(ops::AddV2(s, sum, b));
        break;
      }
      case 5: {
        const Output zero = Constant(s, Tensor::Scalar<float>(0));
        values.push_back(ops::SelectV2(s, ops::Greater(s, a, zero), a, b));
        break;
      }
      default: {
        // Shapes travel in host memory.
        const Output filled = ops::Fill(s, ops::Shape(s, a), Constant(s, Tensor::Scalar<float>(1)));
        values.push_back(ops::Sigmoid(s, ops::AddV2(s, filled, b)));
        break;
      }
    }
  }
  for (int i = 0; i < 4; ++i) built.fetches.push_back(values[values.size() - 1 - pick(kNodes)]);
  // After what is fetched, so that every step reads what the one before left.
  std::vector<Operation> before;
  for (const Output& fetch : built.fetches) before.push_back(fetch.op());
  for (const Variable& read : built.variables) before.push_back(read.read.op());
  for (const Variable& v : built.variables) {
    const Scope s = anywhere().WithControlDependencies(before);
    built.updates.push_back(AssignAdd(s, v, ops::Tanh(s, built.fetches[0])));
  }
  built.init = InitializeVariables(p.root);
  return built;
}

std::vector<Tensor> RunRandomGraph(Program& p, const RandomGraph& graph) {
  p.RunTargets({graph.init});
  std::vector<Tensor> all;
  for (int step = 0; step < 4; ++step) {
    const auto values = p.Run({{graph.fed, RandomGraphInput(step)}}, graph.fetches, graph.updates);
    EXPECT_TRUE(values.ok()) << values.status();
    if (!values.ok()) return all;
    all.insert(all.end(), values->begin(), values->end());
  }
  for (const Variable& v : graph.variables) all.push_back(p.Eval(v.read));
  return all;
}

void RunStepsThatAreGivenUp(Program& p, const RandomGraph& graph, int num_callers, int steps) {
  p.RunTargets({graph.init});
  const auto expected = p.Run({{graph.fed, RandomGraphInput(1)}}, graph.fetches);
  ASSERT_TRUE(expected.ok()) << expected.status();
  std::vector<std::thread> callers;
  for (int c = 0; c < num_callers; ++c) {
    callers.emplace_back([&, c] {
      for (int i = 0; i < steps; ++i) {
        const bool hurries = (i + c) % 2 == 0;
        const auto values = p.Run({{graph.fed, RandomGraphInput(1)}}, graph.fetches, {},
                                  std::chrono::milliseconds(hurries ? 1 + i % 6 : 0));
        if (!values.ok()) {
          EXPECT_TRUE(hurries) << values.status();
          continue;
        }
        for (std::size_t k = 0; k < values->size(); ++k) {
          EXPECT_TRUE(TensorsEqual((*values)[k], (*expected)[k]));
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

}  // namespace millrace::testing
