// SPDX-License-Identifier: Apache-2.0
// Elementwise nodes on an accelerator become one launch once that is compiled, and give the same
// bits before and after.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <random>
#include <tuple>

#include "base/errors.h"
#include "base/notification.h"
#include "base/strings.h"
#include "jit/code_cache.h"
#include "jit/fused_test_util.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "tests/device_conformance/program.h"

namespace millrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Tensor Noise(const Shape& shape, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::normal_distribution<float> normal(0, 2);
  Tensor t(kFloat, shape);
  for (float& x : t.flat<float>()) x = normal(random);
  return t;
}

class FusionTest : public ::testing::Test {
 protected:
  explicit FusionTest(const std::string& type = "FAKE") : p(type) {
    jit::CodeCache::ReplaceGlobalForTest(&cache);
  }
  ~FusionTest() override {
    ExpectNothingLeft(p);
    jit::CodeCache::ReplaceGlobalForTest(nullptr);
  }
  void Open() {
    p.config.mutable_graph_options()->mutable_rewrite_options()->set_remapping(
        pb::RewriterConfig::ON);
    p.Open();
  }
  // Runs once and says how many operations that took.
  int64_t OperationsOf(const std::vector<std::pair<Output, Tensor>>& feeds, const Output& fetch,
                       Tensor* value) {
    return OperationsOf(p, feeds, fetch, value);
  }
  // While a constant is on its way to the device, each step asks in an operation of its own what
  // became of it: not what is to be counted.
  static int64_t OperationsOf(Program& p, const std::vector<std::pair<Output, Tensor>>& feeds,
                              const Output& fetch, Tensor* value) {
    EXPECT_TRUE(p.machine()->Synchronize(std::chrono::seconds(30)).ok());
    const int64_t before = p.machine()->num_operations();
    *value = p.Eval(fetch, feeds);
    return p.machine()->num_operations() - before;
  }

  jit::JitOptions options{.library = "jit/libmillrace_jit.so", .nice = 0, .before_compile = [this] {
                            if (waits) may_compile.Wait();
                          }};
  bool waits = false;
  Notification may_compile;
  jit::CodeCache cache{options};
  Program p;
};

TEST_F(FusionTest, AChainIsOneLaunchOnceThatIsCompiled) {
  waits = true;
  const Output x = Placeholder(p.root, kFloat, {3, 40});
  const Output bias = Placeholder(p.root, kFloat, {40});
  const Output biased = ops::BiasAdd(p.device, x, bias);
  const Output y = ops::Tanh(p.device, ops::Mul(p.device, biased, biased));
  const Output last = ops::Sub(p.device.WithOpName("last"), y, ops::Exp(p.device, biased));
  Open();
  Program reference("CPU");
  const Tensor in = Noise({3, 40}, 1), b = Noise({40}, 2);
  Tensor before, after;
  const std::vector<std::pair<Output, Tensor>> feeds = {{x, in}, {bias, b}};
  EXPECT_EQ(OperationsOf(feeds, last, &before), 5) << "nobody waits for the compiler";
  may_compile.Notify();
  ASSERT_TRUE(cache.WaitUntilIdle());
  EXPECT_EQ(cache.counts().compiled, 1);
  EXPECT_EQ(OperationsOf(feeds, last, &after), 1);
  EXPECT_TRUE(TensorsEqual(before, after));

  const Output rx = Placeholder(reference.root, kFloat, {3, 40});
  const Output rb = ops::BiasAdd(reference.root, rx, Constant(reference.root, b));
  const Output ry =
      ops::Sub(reference.root, ops::Tanh(reference.root, ops::Mul(reference.root, rb, rb)),
               ops::Exp(reference.root, rb));
  reference.Open();
  EXPECT_TRUE(TensorsEqual(after, reference.Eval(ry, {{rx, in}})));
}

// Weights that are kept as floats and used as halves.
std::vector<Output> MixedPrecision(const Scope& s, const Output& weights, const Output& gradient) {
  const Output wide = ops::Cast(s, gradient, kFloat);
  const Output updated = ops::Sub(s, weights, ops::Mul(s, wide, wide));
  const Output narrow = ops::Cast(s, updated, gradient.dtype());
  return {updated, ops::Tanh(s, ops::AddV2(s, narrow, gradient))};
}

TEST_F(FusionTest, FloatsOf16BitsAreOneLaunchWithTheBitsOfTheCpu) {
  Program reference("CPU");
  std::vector<std::vector<Output>> here, there;
  std::vector<std::pair<Output, Tensor>> feeds, same;
  const auto placeholder = [](Program& in, const Tensor& value,
                              std::vector<std::pair<Output, Tensor>>* fed) {
    fed->emplace_back(Placeholder(in.root, value.dtype(), PartialShape(value.shape())), value);
    return fed->back().first;
  };
  const Tensor w = Noise({5, 13}, 1);
  for (const DataType type : {kHalf, kBfloat16}) {
    const Tensor g = jit::RoundedTo(type, Noise({5, 13}, 2));
    here.push_back(MixedPrecision(p.device, placeholder(p, w, &feeds), placeholder(p, g, &feeds)));
    there.push_back(MixedPrecision(reference.root, placeholder(reference, w, &same),
                                   placeholder(reference, g, &same)));
  }
  Open();
  reference.Open();
  for (std::size_t k = 0; k < here.size(); ++k) {
    ASSERT_TRUE(p.Run(feeds, here[k]).ok());
    ASSERT_TRUE(cache.WaitUntilIdle());
    const int64_t before = p.machine()->num_operations();
    const auto values = p.Run(feeds, here[k]);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_EQ(p.machine()->num_operations() - before, 1);
    const auto expected = reference.Run(same, there[k]);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(TensorsEqual((*values)[i], (*expected)[i])) << i;
  }
  EXPECT_EQ(cache.counts().compiled, 2);
}

// A value that only a reduction over `axes` reads.
Output Reduced(const Scope& s, const std::string& op, const Output& x, const Output& bias,
               const std::vector<int32_t>& axes, bool keep_dims) {
  const Output mapped = ops::Tanh(s, ops::Mul(s, ops::AddV2(s, x, bias), x));
  const Output list =
      Constant(s, Tensor::FromValues<int32_t>(axes, Shape({static_cast<int64_t>(axes.size())})));
  const std::vector<Input> args = {mapped, list};
  const std::vector<std::pair<std::string, AttrValue>> attrs = {{"keep_dims", keep_dims}};
  return s.WithOpName("reduced").AddOp(op, args, attrs, std::source_location::current()).output(0);
}

struct ReductionOfShape {
  const char* op;
  Shape shape;
  std::vector<int32_t> axes;
  bool keep_dims;
  int64_t operations;  // once everything is compiled
};

TEST_F(FusionTest, ReductionsHaveTheBitsOfTheCpu) {
  const std::vector<ReductionOfShape> table = {{"Sum", {9, 40}, {1}, false, 1},
                                               {"Mean", {9, 40}, {-1}, true, 1},
                                               {"Max", {5, 3, 7}, {1, 2}, false, 1},
                                               {"Min", {300, 17}, {1}, false, 1},
                                               {"Sum", {280, 260}, {1}, false, 1},
                                               // One value of all, long rows, few rows and other
                                               // axes: the map, and the kernel of the reduction.
                                               {"Sum", {9, 40}, {0, 1}, false, 2},
                                               {"Mean", {3, 5000}, {1}, false, 2},
                                               {"Max", {2, 300}, {1}, false, 2},
                                               {"Sum", {9, 40}, {0}, false, 2}};
  for (const ReductionOfShape& row : table) {
    SCOPED_TRACE(StrCat(row.op, " of ", row.shape.DebugString()));
    Program here("FAKE"), reference("CPU");
    const Tensor in = Noise(row.shape, 1), b = Noise({row.shape.dim(row.shape.rank() - 1)}, 2);
    const auto open = [&](Program& in_program, const Scope& s) {
      const Output x = Placeholder(in_program.root, kFloat, PartialShape(row.shape));
      const Output bias = Placeholder(in_program.root, kFloat, PartialShape());
      const Output y = Reduced(s, row.op, x, bias, row.axes, row.keep_dims);
      in_program.config.mutable_graph_options()->mutable_rewrite_options()->set_remapping(
          pb::RewriterConfig::ON);
      in_program.Open();
      return std::tuple(x, bias, y);
    };
    const auto [x, bias, y] = open(here, here.device);
    const auto [rx, rbias, ry] = open(reference, reference.root);
    const Tensor expected = reference.Eval(ry, {{rx, in}, {rbias, b}});
    const Tensor before = here.Eval(y, {{x, in}, {bias, b}});
    ASSERT_TRUE(cache.WaitUntilIdle());
    const int64_t operations = here.machine()->num_operations();
    const Tensor after = here.Eval(y, {{x, in}, {bias, b}});
    EXPECT_EQ(here.machine()->num_operations() - operations, row.operations);
    EXPECT_TRUE(TensorsEqual(after, expected));
    EXPECT_TRUE(TensorsEqual(before, expected)) << "node by node";
    ExpectNothingLeft(here);
    ExpectNothingLeft(reference);
  }
  EXPECT_EQ(cache.counts().failed, 0);
}

TEST_F(FusionTest, AReductionThatFailsIsTheErrorOfItsNode) {
  const Output x = Placeholder(p.root, kFloat, PartialShape());
  const Output bias = Placeholder(p.root, kFloat, PartialShape());
  const Output y = Reduced(p.device, "Sum", x, bias, {2}, false);
  Open();
  const auto values = p.Run({{x, Noise({3, 4}, 1)}, {bias, Noise({4}, 1)}}, {y});
  EXPECT_TRUE(errors::IsInvalidArgument(values.status())) << values.status();
  EXPECT_THAT(values.status().ToString(),
              AllOf(HasSubstr("axis 2 is out of range"), HasSubstr("{{node reduced}}")));
}

TEST_F(FusionTest, ProductsTakeTheirBiasAndActivationWithThem) {
  const Tensor in = Noise({4, 6, 6, 3}, 1), filter = Noise({3, 3, 3, 5}, 2), b = Noise({5}, 3);
  const Tensor matrix = Noise({144, 7}, 4), last = Noise({7}, 5);
  const auto net = [&](const Scope& s, const Output& x) {
    const Output conv = ops::Conv2D(s, x, Constant(s, filter), {1, 1, 1, 1}, "SAME");
    const Output seen = ops::Relu(s, ops::BiasAdd(s, conv, Constant(s, b)));
    const Output rows = ops::Reshape(s, seen, Constant(s, Tensor::FromValues<int32_t>({5, 144})));
    const Output product = ops::MatMul(s, rows, Constant(s, matrix));
    return ops::Tanh(s, ops::BiasAdd(s, product, Constant(s, last)));
  };
  const Output x = Placeholder(p.root, kFloat, {4, 6, 6, 3});
  const Output y = net(p.device, x);
  p.Open();  // products are put together without being asked to
  Tensor first, value;
  OperationsOf({{x, in}}, y, &first);
  // The two products: the constants are there by now.
  EXPECT_EQ(OperationsOf({{x, in}}, y, &value), 2);
  Program reference("CPU");
  const Output rx = Placeholder(reference.root, kFloat, {4, 6, 6, 3});
  const Output ry = net(reference.root, rx);
  reference.Open();
  EXPECT_TRUE(TensorsEqual(value, reference.Eval(ry, {{rx, in}})));
  p.config.mutable_graph_options()->mutable_rewrite_options()->set_remapping(
      pb::RewriterConfig::OFF);
  p.session = p.NewSession();
  OperationsOf({{x, in}}, y, &first);
  EXPECT_EQ(OperationsOf({{x, in}}, y, &value), 6) << "each node by itself";
  EXPECT_TRUE(TensorsEqual(value, first));
}

TEST_F(FusionTest, ProductsOf16BitsTakeTheirBiasAndActivationWithThemToTheSameBits) {
  for (const DataType type : {kHalf, kBfloat16}) {
    SCOPED_TRACE(DataTypeName(type));
    const Tensor in = Noise({5, 6, 5, 3}, 1), filter = Noise({2, 3, 3, 3}, 4), b = Noise({3}, 5);
    const Tensor matrix = Noise({90, 7}, 2), bias = Noise({7}, 3);
    const auto net = [&](const Scope& s, const Output& x) {
      const auto narrow = [&](const Tensor& t) { return ops::Cast(s, Constant(s, t), type); };
      const Output conv =
          ops::Conv2D(s, ops::Cast(s, x, type), narrow(filter), {1, 1, 1, 1}, "SAME");
      const Output seen = ops::Relu(s, ops::BiasAdd(s, conv, narrow(b)));
      const Output rows = ops::Reshape(s, seen, Constant(s, Tensor::FromValues<int32_t>({5, 90})));
      const Output product = ops::MatMul(s, rows, narrow(matrix));
      return ops::Sigmoid(s, ops::BiasAdd(s, product, narrow(bias)));
    };
    Program fused("FAKE"), plain("FAKE"), host("CPU");
    plain.config.mutable_graph_options()->mutable_rewrite_options()->set_remapping(
        pb::RewriterConfig::OFF);
    std::vector<Tensor> values;
    std::vector<int64_t> operations;
    for (Program* const each : {&fused, &plain, &host}) {
      const Output x = Placeholder(each->root, kFloat, {5, 6, 5, 3});
      const Output y = net(each->device, x);
      each->Open();
      each->Eval(y, {{x, in}});  // the constants come
      if (each->simulated()) {
        operations.push_back(OperationsOf(*each, {{x, in}}, y, &values.emplace_back()));
      } else {
        values.push_back(each->Eval(y, {{x, in}}));
      }
    }
    EXPECT_EQ(operations[0] + 4, operations[1]) << "bias and activation are no operations";
    EXPECT_EQ(values[0].dtype(), type);
    EXPECT_TRUE(TensorsEqual(values[0], values[1]));
    EXPECT_TRUE(TensorsEqual(values[0], values[2]));
  }
}

TEST_F(FusionTest, WhatRepeatsInOtherWaysRunsOpByOp) {
  const Output x = Placeholder(p.root, kFloat, {3, 4});
  const Output column = Placeholder(p.root, kFloat, {3, 1});
  const Output y = ops::Neg(p.device, ops::Mul(p.device, x, column));
  Open();
  Tensor value;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(OperationsOf({{x, Noise({3, 4}, 1)}, {column, Noise({3, 1}, 2)}}, y, &value), 2);
    ASSERT_TRUE(cache.WaitUntilIdle());
  }
  EXPECT_EQ(cache.counts().requested, 0);
}

TEST_F(FusionTest, FunctionsOfDoublesAreOneLaunchToo) {
  const Output x = Placeholder(p.root, kDouble, {500});
  const Output y = ops::Neg(p.device, ops::Exp(p.device, x));
  Open();
  Tensor in(kDouble, {500}), before, after;
  for (int i = 0; i < 500; ++i) in.data<double>()[i] = 0.37 * i - 90;
  EXPECT_EQ(OperationsOf({{x, in}}, y, &before), 2) << "nobody waits for the compiler";
  ASSERT_TRUE(cache.WaitUntilIdle());
  EXPECT_EQ(cache.counts().compiled, 1);
  EXPECT_EQ(OperationsOf({{x, in}}, y, &after), 1);
  // A grid's own function, whose last bit may be another (jit/emit_double_math.h).
  for (int i = 0; i < 500; ++i) {
    const double kernel = before.data<double>()[i], loop = after.data<double>()[i];
    EXPECT_LE(std::abs(loop - kernel), std::abs(kernel) * 0x1p-51) << in.data<double>()[i];
  }
}

TEST_F(FusionTest, EqualProgramsAreCompiledForEachSessionAndShapesShareTheirLoop) {
  const Output x = Placeholder(p.root, kFloat, PartialShape());
  const Output y = ops::Neg(p.device, ops::Square(p.device, x));
  Open();
  Tensor value;
  for (const int64_t n : {5, 9, 1}) OperationsOf({{x, Noise({n}, 3)}}, y, &value);
  ASSERT_TRUE(cache.WaitUntilIdle());
  EXPECT_EQ(cache.counts().requested, 1);
  for (const int64_t n : {5, 9, 12}) {
    EXPECT_EQ(OperationsOf({{x, Noise({n}, 3)}}, y, &value), 1) << n << " elements";
  }
  EXPECT_EQ(OperationsOf({{x, Tensor(kFloat, {0})}}, y, &value), 0);
  EXPECT_EQ(value.num_elements(), 0);
}

TEST_F(FusionTest, AWrongShapeIsTheErrorOfTheNodeThatItBelongsTo) {
  const Output x = Placeholder(p.root, kFloat, PartialShape());
  const Output z = Placeholder(p.root, kFloat, PartialShape());
  const Output sum = ops::AddV2(p.device.WithOpName("sum"), x, z);
  const Output y = ops::Neg(p.device.WithOpName("last"), sum);
  Open();
  const auto values = p.Run({{x, Noise({3}, 1)}, {z, Noise({4}, 1)}}, {y});
  EXPECT_TRUE(errors::IsInvalidArgument(values.status())) << values.status();
  EXPECT_THAT(values.status().ToString(), HasSubstr("{{node sum}}"));
}

TEST_F(FusionTest, ALaunchThatFailsNamesTheFusedNodeAndItsDevice) {
  const Output x = Placeholder(p.root, kFloat, {4});
  const Output y = ops::Neg(p.device.WithOpName("last"), ops::Square(p.device, x));
  Open();
  p.Eval(y, {{x, Noise({4}, 1)}});
  ASSERT_TRUE(cache.WaitUntilIdle());
  p.machine()->FailNext("last", errors::DataLoss("cosmic ray"));
  const auto values = p.Run({{x, Noise({4}, 1)}}, {y});
  EXPECT_THAT(values.status().ToString(),
              AllOf(HasSubstr("cosmic ray"), HasSubstr("{{node last}}"), HasSubstr("FAKE:0")));
  EXPECT_TRUE(p.Run({{x, Noise({4}, 1)}}, {y}).ok());
}

TEST_F(FusionTest, ASessionMayEndWhileItsLoopIsCompiled) {
  waits = true;
  const Output x = Placeholder(p.root, kFloat, {4});
  const Output y = ops::Neg(p.device, ops::Square(p.device, x));
  Open();
  p.Eval(y, {{x, Noise({4}, 1)}});
  p.session.reset();
  p.master.reset();  // and the machine with it
  may_compile.Notify();
  ASSERT_TRUE(cache.WaitUntilIdle());
  EXPECT_EQ(cache.counts().failed, 0);
}

// Elementwise all the way: an update rule written out, its state in variables.
std::vector<Tensor> Train(Program* p, jit::CodeCache* cache) {
  const Scope& d = p->device;
  const Output x = Placeholder(p->root, kFloat, {8, 32});
  const Variable w = MakeVariable(d, "w", Constant(d, Noise({32}, 5)), {.use_resource = true});
  const Variable m = MakeVariable(d, "m", Constant(d, Noise({32}, 6)), {.use_resource = true});
  const Output h = ops::Relu(d, ops::Mul(d, x, w.read));
  const Output g =
      ops::Tanh(d, ops::AddV2(d, h, ops::Mul(d, m.read, Constant(d, Tensor::Scalar<float>(0.9f)))));
  const Output loss = ops::Sigmoid(d, ops::Sub(d, g, ops::Square(d, h)));
  const Output step = ops::Mul(d, ops::Sum(d, loss, Constant(d, Tensor::FromValues<int32_t>({0}))),
                               Constant(d, Tensor::Scalar<float>(0.01f)));
  const Operation keep =
      AssignAdd(d, m, ops::Neg(d, ops::Mul(d, step, Constant(d, Tensor::Scalar<float>(0.5f)))));
  const Operation update = AssignAdd(d, w, step);
  const Operation init = InitializeVariables(p->root);
  p->config.mutable_graph_options()->mutable_rewrite_options()->set_remapping(
      pb::RewriterConfig::ON);
  p->Open();
  p->RunTargets({init});
  std::vector<Tensor> all;
  for (int i = 0; i < 12; ++i) {
    const auto values = p->Run({{x, Noise({8, 32}, 100 + i)}}, {loss}, {update, keep});
    EXPECT_TRUE(values.ok()) << values.status();
    if (!values.ok()) return all;
    all.push_back((*values)[0]);
    if (i % 4 != 3) continue;
    EXPECT_TRUE(cache->WaitUntilIdle());
  }
  all.push_back(p->Eval(w.read));
  all.push_back(p->Eval(m.read));
  return all;
}

class FusedTrainingTest : public FusionTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, FusedTrainingTest, ::testing::Values(0, 3, 4));

TEST_P(FusedTrainingTest, GivesTheBitsOfTheCpu) {
  Program reference("CPU");
  const std::vector<Tensor> expected = Train(&reference, &cache);
  const int compiled = cache.counts().requested;
  SetFakeDeviceOptions({.jitter_seed = static_cast<uint64_t>(GetParam())});
  const std::vector<Tensor> found = Train(&p, &cache);
  SetFakeDeviceOptions({});
  EXPECT_GT(cache.counts().requested, compiled) << "nothing was fused on the device";
  EXPECT_EQ(cache.counts().failed, 0);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(TensorsEqual(found[i], expected[i])) << "value " << i;
  }
}

}  // namespace
}  // namespace millrace::testing
