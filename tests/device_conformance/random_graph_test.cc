// Graphs of random ops on the host and two devices, run with random delays: what comes out is
// what one CPU computes, bit for bit, whatever happened first.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "base/strings.h"
#include "millrace/millrace.h"
#include "millrace/ops.h"
#include "tests/device_conformance/program.h"

namespace millrace::testing {
namespace {

constexpr int kSeeds = 12;
constexpr int kNodes = 40;
constexpr int64_t kSize = 257;

struct Built {
  Output fed;
  std::vector<Output> fetches;
  std::vector<Variable> variables;
  std::vector<Operation> updates;
  Operation init;
};

Tensor Start(int seed) {
  Tensor t(kFloat, {kSize});
  for (int64_t i = 0; i < kSize; ++i) {
    t.data<float>()[i] = static_cast<float>((i * 7 + seed) % 31) / 31.0f;
  }
  return t;
}

// The same graph for the same seed, on whatever devices the program has.
Built Build(Program& p, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  const auto pick = [&random](std::size_t n) { return random() % n; };
  const auto anywhere = [&] {
    const std::size_t where = pick(3);
    return where == 2 ? p.host() : p.On(static_cast<int>(where));
  };
  Built built;
  built.fed = Placeholder(p.root, kFloat, {kSize});
  std::vector<Output> values{built.fed};
  for (int v = 0; v < 2; ++v) {
    built.variables.push_back(MakeVariable(
        anywhere(), StrCat("v", v), Constant(p.root, Start(seed + v)), {.use_resource = true}));
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

std::vector<Tensor> RunSteps(Program& p, const Built& built) {
  p.RunTargets({built.init});
  std::vector<Tensor> all;
  for (int step = 0; step < 4; ++step) {
    const auto values = p.Run({{built.fed, Start(step)}}, built.fetches, built.updates);
    EXPECT_TRUE(values.ok()) << values.status();
    if (!values.ok()) return all;
    all.insert(all.end(), values->begin(), values->end());
  }
  for (const Variable& v : built.variables) all.push_back(p.Eval(v.read));
  return all;
}

class RandomGraphTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphTest, ::testing::Range(1, kSeeds + 1));

TEST_P(RandomGraphTest, ComputesOnJitteringDevicesWhatTheCpuComputes) {
  const int seed = GetParam();
  Program reference("CPU");
  const Built expected_graph = Build(reference, seed);
  reference.Open(-1);
  const std::vector<Tensor> expected = RunSteps(reference, expected_graph);
  SetFakeDeviceOptions({.memory_limit = int64_t{1} << 20,
                        .jitter_seed = static_cast<uint64_t>(seed) * 1000,
                        .max_delay = std::chrono::microseconds(100)});
  Program p("FAKE");
  const Built graph = Build(p, seed);
  p.Open(seed % 3 == 0 ? -1 : 2);
  SetFakeDeviceOptions({});
  const std::vector<Tensor> found = RunSteps(p, graph);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(TensorsEqual(found[i], expected[i])) << "value " << i;
  }
  ExpectNothingLeft(p);
}

// Steps of one session at once, some of them cancelled by their deadline: nothing is left behind,
// and those that end well have computed the right thing.
TEST_P(RandomGraphTest, SurvivesStepsThatAreGivenUp) {
  const int seed = GetParam();
  SetFakeDeviceOptions({.jitter_seed = static_cast<uint64_t>(seed) * 2000 + 1});
  Program p("FAKE");
  const Built graph = Build(p, seed);
  p.Open();
  SetFakeDeviceOptions({});
  p.RunTargets({graph.init});
  const auto expected = p.Run({{graph.fed, Start(1)}}, graph.fetches);
  ASSERT_TRUE(expected.ok()) << expected.status();
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&, c] {
      for (int i = 0; i < 6; ++i) {
        const bool hurries = (i + c) % 2 == 0;
        const auto values = p.Run({{graph.fed, Start(1)}}, graph.fetches, {},
                                  std::chrono::milliseconds(hurries ? 1 + i : 0));
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
  ExpectNothingLeft(p);
}

}  // namespace
}  // namespace millrace::testing
