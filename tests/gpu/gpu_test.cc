// SPDX-License-Identifier: Apache-2.0
// What only a GPU can show: loops that the driver compiles, sessions that share a device, memory
// that comes back. tests/gpu/run_all runs it; it fails where there is no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "base/errors.h"
#include "bench/gpu/bare.h"
#include "bench/gpu/runner.h"
#include "bench/gpu/workloads.h"
#include "jit/code_cache.h"
#include "jit/fused_test_util.h"
#include "jit/host_grid.h"
#include "jit/ptx_test_util.h"
#include "millrace/control_flow.h"
#include "millrace/core.h"
#include "millrace/gpu.h"
#include "millrace/ops.h"
#include "tests/device_conformance/program.h"

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto gpus = FindGpus();
    ASSERT_TRUE(gpus.ok()) << gpus.status();
  }
};

// ---- loops ----

// The nodes that a program was made of, and one more behind each result, so that there is always
// something to put together.
std::vector<Output> NodesOf(const FusedProgram& program, const Scope& s,
                            const std::vector<Output>& inputs) {
  const auto here = std::source_location::current();
  std::vector<Output> results;
  for (const FusedInstruction& in : program.instructions) {
    std::vector<Input> args;
    for (const int32_t arg : in.args) args.push_back(arg >= 0 ? inputs[arg] : results[~arg]);
    std::vector<std::pair<std::string, AttrValue>> attrs;
    if (FormOf(in.op) == FusedForm::kCast) attrs.emplace_back("DstT", in.result);
    if (FormOf(in.op) == FusedForm::kSum) {
      const std::vector<std::vector<Input>> lists = {args};
      results.push_back(s.AddOpWithLists(NameOf(in.op), lists, attrs, here).output(0));
    } else {
      results.push_back(s.AddOp(NameOf(in.op), args, attrs, here).output(0));
    }
  }
  std::vector<Output> outputs;
  for (const int32_t output : program.outputs) {
    const bool is_bool = program.instructions[output].result == kBool;
    outputs.push_back(is_bool ? ops::LogicalNot(s, results[output]) : ops::Neg(s, results[output]));
  }
  return outputs;
}

// The values of a program on a type of device, fused or not; `steps` times, the last one's.
std::vector<Tensor> Evaluate(const std::string& type, bool fuse, const jit::PtxCase& c,
                             const std::vector<Tensor>& values, int steps) {
  Program p(type);
  p.devices = 1;
  p.config.mutable_graph_options()->mutable_rewrite_options()->set_remapping(
      fuse ? pb::RewriterConfig::ON : pb::RewriterConfig::OFF);
  std::vector<Output> inputs;
  std::vector<std::pair<Output, Tensor>> feeds;
  for (const Tensor& value : values) {
    inputs.push_back(Placeholder(p.root, value.dtype(), PartialShape(value.shape())));
    feeds.emplace_back(inputs.back(), value);
  }
  const std::vector<Output> outputs = NodesOf(jit::ParseCase(c), p.device, inputs);
  p.Open();
  if (p.session == nullptr) return {};
  std::vector<Tensor> found;
  for (int i = 0; i < steps; ++i) {
    const auto step = p.Run(feeds, outputs);
    EXPECT_TRUE(step.ok()) << step.status();
    if (!step.ok()) return {};
    found = *step;
    EXPECT_TRUE(jit::CodeCache::Global()->WaitUntilIdle());
  }
  return found;
}

class FusedLoopTest : public GpuTest {
 protected:
  FusedLoopTest() { jit::CodeCache::ReplaceGlobalForTest(&cache_); }
  ~FusedLoopTest() override { jit::CodeCache::ReplaceGlobalForTest(nullptr); }
  jit::CodeCache cache_{jit::JitOptions{.nice = 0}};
};

// What NodesOf makes of a program whose one output is a double, by the grid's own functions: the
// code of the GPU run by the host.
std::vector<Tensor> OnHostGrid(const jit::PtxCase& c, const std::vector<Tensor>& values) {
  const FusedProgram program = jit::ParseCase(c);
  std::vector<Shape> shapes;
  for (const Tensor& value : values) shapes.push_back(value.shape());
  const jit::FusedLayout layout = jit::MakeFusedLayout(program, shapes);
  jit::HostGrid grid(program, c.inputs, layout);
  EXPECT_EQ(grid.error(), "");
  std::vector<Tensor> found = grid.Run(values, 64, 0, false);
  for (double& x : found[0].flat<double>()) x = -x;
  return found;
}

TEST_F(FusedLoopTest, EachOpGivesTheBitsOfTheCpu) {
  for (const jit::PtxCase& c : jit::PtxCases()) {
    SCOPED_TRACE(c.name);
    const FusedForm form = FormOf(jit::ParseCase(c).instructions[0].op);
    if (form == FusedForm::kBias && c.spreads[1] != jit::Spread::kRow) continue;
    std::mt19937 random(11);
    std::vector<Tensor> values;
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      const Shape shape = c.spreads[i] == jit::Spread::kOnce  ? Shape({})
                          : c.spreads[i] == jit::Spread::kRow ? Shape({12})
                                                              : Shape({501, 12});
      values.push_back(jit::RandomTensor(random, c.inputs[i], shape));
    }
    const int before = cache_.counts().compiled;
    const std::vector<Tensor> found = Evaluate("GPU", true, c, values, 2);
    const bool own = jit::HasDoubleFunctions(jit::ParseCase(c));
    EXPECT_EQ(
        jit::Difference(found, own ? OnHostGrid(c, values) : Evaluate("CPU", false, c, values, 1)),
        "");
    EXPECT_GT(cache_.counts().compiled, before) << "nothing was compiled for the GPU";
  }
  EXPECT_EQ(cache_.counts().failed, 0);
}

TEST_F(FusedLoopTest, SizesThatAreNoMultipleOfAGroupGiveTheBitsOfTheCpu) {
  const jit::PtxCase c{"chain",
                       "Mul:float i0 i1; Sigmoid:float t0; Add:float t1 i0 > t2",
                       {kFloat, kFloat},
                       {kFloat},
                       {jit::Spread::kEach, jit::Spread::kRow}};
  for (const int64_t rows : {1, 3, 1000, 70001}) {
    for (const int64_t row : {1, 3, 4, 7, 64}) {
      std::mt19937 random(static_cast<unsigned>(rows * 100 + row));
      const std::vector<Tensor> values = {jit::RandomTensor(random, kFloat, Shape({rows, row})),
                                          jit::RandomTensor(random, kFloat, Shape({row}))};
      EXPECT_EQ(jit::Difference(Evaluate("GPU", true, c, values, 2),
                                Evaluate("CPU", false, c, values, 1)),
                "")
          << rows << " x " << row;
    }
  }
}

TEST_F(FusedLoopTest, ReductionsOfRowsGiveTheBitsOfTheCpu) {
  const auto run = [&](const std::string& type, bool fuse, const char* op,
                       const std::vector<Tensor>& values) {
    Program p(type);
    p.devices = 1;
    p.config.mutable_graph_options()->mutable_rewrite_options()->set_remapping(
        fuse ? pb::RewriterConfig::ON : pb::RewriterConfig::OFF);
    const Output x = Placeholder(p.root, kFloat, PartialShape(values[0].shape()));
    const Output row = Placeholder(p.root, kFloat, PartialShape(values[1].shape()));
    const std::vector<Input> args = {ops::Tanh(p.device, ops::Mul(p.device, x, row)),
                                     Constant(p.device, Tensor::FromValues<int32_t>({1}))};
    const std::vector<std::pair<std::string, AttrValue>> attrs;
    const Output y = p.device.AddOp(op, args, attrs, std::source_location::current()).output(0);
    p.Open();
    Tensor found;
    for (int i = 0; i < 2; ++i) {
      found = p.Eval(y, {{x, values[0]}, {row, values[1]}});
      EXPECT_TRUE(jit::CodeCache::Global()->WaitUntilIdle());
    }
    return std::vector<Tensor>{found};
  };
  for (const char* op : {"Sum", "Mean", "Max", "Min"}) {
    // An odd number of rows leaves half a warp without one.
    for (const auto& [rows, row] : {std::pair{3, 2}, {17, 16}, {1001, 63}, {70001, 256}}) {
      std::mt19937 random(static_cast<unsigned>(rows));
      const std::vector<Tensor> values = {jit::RandomTensor(random, kFloat, Shape({rows, row})),
                                          jit::RandomTensor(random, kFloat, Shape({row}))};
      const int before = cache_.counts().compiled;
      EXPECT_EQ(jit::Difference(run("GPU", true, op, values), run("CPU", false, op, values)), "")
          << op << " of " << rows << " x " << row;
      EXPECT_GT(cache_.counts().compiled, before) << "nothing was compiled for the GPU";
    }
  }
}

// ---- sessions ----

// Steps of a program that keeps a GPU busy for a while, until it is cancelled.
struct Busy {
  Busy() : p("GPU") {
    p.devices = 1;
    p.config.mutable_gpu_options()->set_allow_growth(true);
    const Scope& d = p.device;
    Output x = RandomNormal(d, Shape({4096, 4096}), {.stddev = 0.01f});
    for (int i = 0; i < 3000; ++i) x = ops::MatMul(d, x, x);
    result = ReduceMean(d, x);
    p.Open();
  }
  Program p;
  Output result;
};

TEST_F(GpuTest, ASessionThatIsClosedInAStepGivesEverythingBack) {
  const auto driver = LoadedCudaDriver();
  ASSERT_TRUE(driver.ok()) << driver.status();
  const auto bare = bench::Bare::Start(*driver);  // holds the context, so that both are alike
  ASSERT_TRUE(bare.ok()) << bare.status();
  const auto once = [] {
    Busy busy;
    ASSERT_NE(busy.p.session, nullptr);
    Status status;
    std::thread runner([&] { status = busy.p.Run({}, {busy.result}).status(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_TRUE(busy.p.session->Close().ok());
    runner.join();
    EXPECT_TRUE(errors::IsCancelled(status) || errors::IsAborted(status)) << status;
  };
  once();  // libraries take memory for good when they are first used
  const auto before = (*bare)->MemoryInUse();
  ASSERT_TRUE(before.ok()) << before.status();
  once();
  const auto after = (*bare)->MemoryInUse();
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_LE(*after, *before + (int64_t{64} << 20));

  Program next("GPU");
  next.devices = 1;
  const Output y = ops::Neg(next.device, Constant(next.device, Tensor::FromValues<float>({1, 2})));
  next.Open();
  EXPECT_TRUE(TensorsEqual(next.Eval(y), Tensor::FromValues<float>({-1, -2})));
}

// The loss of a workload after 100 steps from its own beginning.
void LossOf(const char* name, float* loss) {
  auto runner = bench::Runner::Start(bench::MakeWorkload(name, {}), "GPU");
  ASSERT_TRUE(runner.ok()) << name << ": " << runner.status();
  for (int i = 0; i < 100; ++i) {
    const Status status = (*runner)->Step();
    ASSERT_TRUE(status.ok()) << name << ", step " << i << ": " << status;
  }
  const auto results = (*runner)->Results();
  ASSERT_TRUE(results.ok()) << name << ": " << results.status();
  ASSERT_EQ((*results)[0].num_elements(), 1);
  *loss = (*results)[0].data<float>()[0];
}

// In full size, as CUDA graphs, and with whatever algorithms are fastest: up to their rounding.
TEST_F(GpuTest, ThreeSessionsThatShareAGpuComputeWhatEachComputesAlone) {
  std::map<std::string, float> alone;
  for (const char* name : {"mlp", "cnn"}) LossOf(name, &alone[name]);
  ASSERT_FALSE(HasFailure());
  const char* const names[] = {"mlp", "cnn", "mlp"};
  float together[3] = {-1, -1, -1};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] { LossOf(names[i], &together[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(together[i], alone[names[i]], 1e-2f * alone[names[i]]) << names[i];
  }
  EXPECT_NE(alone["mlp"], alone["cnn"]);
}

TEST_F(GpuTest, MemoryThatThereIsNotIsToldWithWhoHasIt) {
  Program p("GPU");
  p.devices = 1;
  const Output large = ops::Fill(p.device.WithOpName("large"),
                                 Constant(p.root, Tensor::FromValues<int64_t>({1 << 20, 1 << 20})),
                                 Constant(p.device, Tensor::Scalar<float>(1)));
  const Output sum = ReduceMean(p.device, large);
  p.Open();
  const auto values = p.Run({}, {sum});
  EXPECT_TRUE(errors::IsResourceExhausted(values.status())) << values.status();
  EXPECT_THAT(values.status().ToString(), HasSubstr("OOM when allocating tensor"));
  EXPECT_THAT(values.status().ToString(), HasSubstr("{{node large}}"));
}

TEST_F(GpuTest, ALoopOfASessionRunsOnTheGpu) {
  Program p("GPU");
  p.devices = 1;
  const Scope& d = p.device;
  const auto loop = WhileLoop(
      d, {Constant(d, Tensor::Scalar<float>(1))},
      [](const Scope& s, std::span<const Output> x) { return ops::Less(s, x[0], 1000.0f); },
      [](const Scope& s, std::span<const Output> x) {
        return std::vector<Output>{ops::Mul(s, x[0], 2.0f)};
      });
  p.Open();
  EXPECT_TRUE(TensorsEqual(p.Eval(loop[0]), Tensor::Scalar<float>(1024)));
}

}  // namespace
}  // namespace millrace::testing
