// SPDX-License-Identifier: Apache-2.0
// What a program sees of a device: feeds, fetches, variables, loops, errors. Written once, over
// the devices that there are; what only a simulated one can be made to do comes last.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/errors.h"
#include "base/strings.h"
#include "millrace/control_flow.h"
#include "millrace/core.h"
#include "millrace/ops.h"
#include "tests/device_conformance/kinds.h"
#include "tests/device_conformance/program.h"

namespace millrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Tensor Floats(std::initializer_list<float> values) { return Tensor::FromValues<float>(values); }
Tensor Ints(std::initializer_list<int32_t> values) { return Tensor::FromValues<int32_t>(values); }
Tensor Filled(int64_t n, float value) {
  Tensor t(kFloat, {n});
  for (float& x : t.flat<float>()) x = value;
  return t;
}

class SessionsTest : public ::testing::TestWithParam<Kind> {
 protected:
  SessionsTest() : p(GetParam().type) {
    Prepare(GetParam(), &p.config);
    SetFakeDeviceOptions({.jitter_seed = GetParam().jitter_seed});
  }
  ~SessionsTest() override { SetFakeDeviceOptions({}); }
  void SetUp() override { ASSERT_EQ(Obstacle(), ""); }
  void Open() { p.Open(GetParam().threads); }
  void TearDown() override {
    if (p.master != nullptr) ExpectNothingLeft(p);
  }
  Program p;
};

INSTANTIATE_TEST_SUITE_P(Kinds, SessionsTest, ::testing::ValuesIn(SessionKinds()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(SessionsTest, ComputesOnTheDeviceWhatIsFedAndFetched) {
  const Output x = Placeholder(p.root, kFloat, {2});
  const Output y = ops::AddV2(p.device.WithOpName("y"), x, x);
  Open();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(TensorsEqual(p.Eval(y, {{x, Floats({1, 2})}}), Floats({2, 4})));
  }
  if (p.simulated()) {
    EXPECT_EQ(p.machine()->num_operations(), 3);
  }
}

TEST_P(SessionsTest, FeedsAndFetchesValuesOfTheDeviceItself) {
  const Output x = Placeholder(p.device, kFloat, {2});
  const Output y = ops::Neg(p.device, x);
  Open();
  const auto values = p.Run({{x, Floats({1, 2})}}, {y, y});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_TRUE(TensorsEqual((*values)[0], Floats({-1, -2})));
  EXPECT_TRUE(TensorsEqual((*values)[1], Floats({-1, -2})));
  const Output z = ops::Neg(p.device, y);
  p.session = p.NewSession();
  EXPECT_TRUE(TensorsEqual(p.Eval(z, {{y, Floats({7, 7})}}), Floats({-7, -7})));
}

TEST_P(SessionsTest, RunsCallables) {
  const Output x = Placeholder(p.root, kFloat, {2});
  const Output y = ops::Mul(p.device, x, Constant(p.device, Floats({3, 4})));
  Open();
  pb::CallableOptions options;
  options.add_feed(x.name());
  options.add_fetch(y.name());
  const auto callable = p.session->MakeCallable(options);
  ASSERT_TRUE(callable.ok()) << callable.status();
  for (float f = 0; f < 5; ++f) {
    const auto values = p.session->RunCallable(*callable, {Floats({f, f})});
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(TensorsEqual((*values)[0], Floats({3 * f, 4 * f})));
  }
  EXPECT_TRUE(p.session->ReleaseCallable(*callable).ok());
}

TEST_P(SessionsTest, CarriesValuesOfAllSizesAndTypes) {
  const Output floats = Placeholder(p.root, kFloat, PartialShape());
  const Output text = Placeholder(p.root, kString, PartialShape());
  const Output ints = Placeholder(p.root, kInt32, PartialShape());
  const Output longs = Placeholder(p.root, kInt64, PartialShape());
  const Output f = ops::Identity(p.device, floats);
  const Output t = ops::Identity(p.device, text);
  const Output i = ops::Identity(p.device, ints);
  const Output l = ops::Identity(p.On(1), ops::Identity(p.device, longs));
  Open();
  for (const int64_t n : {0, 1, 7, 1000, 300'001}) {
    EXPECT_TRUE(TensorsEqual(p.Eval(f, {{floats, Filled(n, 2.5f)}}), Filled(n, 2.5f))) << n;
  }
  const Tensor words = Tensor::FromValues<std::string>({"on", "the", "host"});
  EXPECT_TRUE(TensorsEqual(p.Eval(t, {{text, words}}), words));
  EXPECT_TRUE(TensorsEqual(p.Eval(i, {{ints, Ints({1, 2, 3})}}), Ints({1, 2, 3})));
  const Tensor wide = Tensor::FromValues<int64_t>({1, int64_t{1} << 40});
  EXPECT_TRUE(TensorsEqual(p.Eval(l, {{longs, wide}}), wide));
}

TEST_P(SessionsTest, PassesValuesBetweenDevices) {
  const Output x = Placeholder(p.root, kFloat, {1000});
  Output y = x;
  for (int i = 0; i < 12; ++i) {
    const Scope s = i % 3 == 2 ? p.host() : p.On(i % 3);
    y = ops::AddV2(s, y, Constant(s, Filled(1000, 1)));
  }
  Open();
  EXPECT_TRUE(TensorsEqual(p.Eval(y, {{x, Filled(1000, 5)}}), Filled(1000, 17)));
}

TEST_P(SessionsTest, ReadsShapesAndAxesInHostMemory) {
  const Output x = Placeholder(p.root, kFloat, PartialShape({-1, -1}));
  const Output shape = ops::Shape(p.device, x);
  const Output rows =
      ops::StridedSlice(p.device, shape, Constant(p.device, Ints({0})),
                        Constant(p.device, Ints({1})), Constant(p.device, Ints({1})));
  const Output columns =
      ops::StridedSlice(p.device, shape, Constant(p.device, Ints({1})),
                        Constant(p.device, Ints({2})), Constant(p.device, Ints({1})));
  const Output turned_shape =
      ops::ConcatV2(p.device, {columns, rows}, Constant(p.device, Tensor::Scalar<int32_t>(0)));
  const Output turned = ops::Reshape(p.device, ops::Neg(p.device, x), turned_shape);
  const Output sums = ops::Sum(p.device, turned, Constant(p.device, Ints({1})));
  const Output filled =
      ops::Fill(p.device, turned_shape, Constant(p.device, Tensor::Scalar<float>(2)));
  const Output both = ops::Mul(p.device, turned, filled);
  // A size that the device computed.
  const Output count = ops::Cast(p.device, sums, kInt32);
  const Output wide =
      ops::Fill(p.device, ops::Neg(p.device, count), Constant(p.device, Tensor::Scalar<float>(1)));
  Open();
  const Tensor fed = Tensor::FromValues<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const auto values = p.Run({{x, fed}}, {sums, both, shape, wide});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_TRUE(TensorsEqual((*values)[0], Floats({-3, -7, -11})));
  EXPECT_TRUE(
      TensorsEqual((*values)[1], Tensor::FromValues<float>({-2, -4, -6, -8, -10, -12}, {3, 2})));
  EXPECT_TRUE(TensorsEqual((*values)[2], Ints({2, 3})));
  EXPECT_EQ((*values)[3].shape(), Shape({3, 7, 11}));
}

TEST_P(SessionsTest, LeavesToTheHostWhatTheDeviceHasNoKernelFor) {
  const Output x = Placeholder(p.root, kFloat, {4});
  const Output where = ops::Where(p.device, ops::Square(p.device, x));  // data decides its shape
  const Output sum = ops::Cast(p.device, where, kFloat);
  Open();
  EXPECT_TRUE(TensorsEqual(p.Eval(sum, {{x, Floats({0, 3, 0, 4})}}),
                           Tensor::FromValues<float>({1, 3}, {2, 1})));
}

TEST_P(SessionsTest, KeepsVariables) {
  const Variable w =
      MakeVariable(p.device, "w", Constant(p.device, Floats({1, 2})), {.use_resource = true});
  const Output fed = Placeholder(p.root, kFloat, {2});
  const Operation set = Assign(p.device, w, fed);
  const Operation add = AssignAdd(p.device, w, Constant(p.device, Floats({10, 20})));
  const Operation init = InitializeVariables(p.root);
  Open();
  const auto before = p.Run({}, {w.read});
  EXPECT_TRUE(errors::IsFailedPrecondition(before.status())) << before.status();
  p.RunTargets({init});
  EXPECT_TRUE(TensorsEqual(p.Eval(w.read), Floats({1, 2})));
  p.RunTargets({add});
  const Tensor kept = p.Eval(w.read);
  p.RunTargets({add});
  EXPECT_TRUE(TensorsEqual(kept, Floats({11, 22})));
  EXPECT_TRUE(TensorsEqual(p.Eval(w.read), Floats({21, 42})));
  const Tensor mine = Floats({5, 6});
  ASSERT_TRUE(p.Run({{fed, mine}}, {}, {set}).ok());
  p.RunTargets({add});
  EXPECT_TRUE(TensorsEqual(mine, Floats({5, 6})));
  EXPECT_TRUE(TensorsEqual(p.Eval(w.read), Floats({15, 26})));
}

TEST_P(SessionsTest, ShowsEveryReaderAWholeUpdate) {
  constexpr int64_t kSize = 5000;
  const Variable w =
      MakeVariable(p.device, "w", Constant(p.device, Filled(kSize, 0)), {.use_resource = true});
  const Operation add = AssignAdd(p.device, w, Constant(p.device, Filled(kSize, 1)));
  const Output read = ops::AddV2(p.device, w.read, w.read);
  const Operation init = InitializeVariables(p.root);
  Open();
  p.RunTargets({init});
  constexpr int kRounds = 15;
  std::thread writer([&] {
    for (int i = 0; i < kRounds; ++i) p.RunTargets({add});
  });
  for (int i = 0; i < kRounds; ++i) {
    const auto values = p.Run({}, {w.read, read});
    ASSERT_TRUE(values.ok()) << values.status();
    const Tensor& one = (*values)[0];
    EXPECT_TRUE(TensorsEqual(one, Filled(kSize, one.flat<float>()[0])));
    const Tensor& two = (*values)[1];
    EXPECT_TRUE(TensorsEqual(two, Filled(kSize, two.flat<float>()[0])));
  }
  writer.join();
  EXPECT_TRUE(TensorsEqual(p.Eval(w.read), Filled(kSize, kRounds)));
}

TEST_P(SessionsTest, LoopsAcrossHostAndDevices) {
  const Output start = Placeholder(p.root, kFloat, {3});
  const auto loop = WhileLoop(
      p.root, {Constant(p.root, Tensor::Scalar<int32_t>(0)), start},
      [&](const Scope& s, std::span<const Output> v) {
        return ops::Less(s, v[0], Constant(s, Tensor::Scalar<int32_t>(10)));
      },
      [&](const Scope& s, std::span<const Output> v) {
        const Scope a = s.WithDevice(StrCat("/device:", p.type, ":0"));
        const Scope b = s.WithDevice(StrCat("/device:", p.type, ":1"));
        const Output x = ops::AddV2(b, ops::Mul(a, v[1], v[1]), Constant(b, Floats({1, 2, 3})));
        return std::vector<Output>{ops::AddV2(s, v[0], Constant(s, Tensor::Scalar<int32_t>(1))),
                                   ops::Tanh(s.WithDevice("/device:CPU:0"), x)};
      });
  Open();
  // The same by hand, on the host.
  Tensor expected = Floats({0.5f, -1, 2});
  {
    Program q("CPU");
    const Output x = Placeholder(q.root, kFloat, {3});
    const Output y = ops::Tanh(
        q.root, ops::AddV2(q.root, ops::Mul(q.root, x, x), Constant(q.root, Floats({1, 2, 3}))));
    q.Open(-1);
    for (int i = 0; i < 10; ++i) expected = q.Eval(y, {{x, expected}});
  }
  const auto values = p.Run({{start, Floats({0.5f, -1, 2})}}, {loop[0], loop[1]});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[0].scalar<int32_t>(), 10);
  EXPECT_TRUE(TensorsEqual((*values)[1], expected)) << (*values)[1].DebugString();
}

TEST_P(SessionsTest, LoopsOnTheDeviceAloneUntilItsOwnValueSaysSo) {
  const Output start = Placeholder(p.root, kFloat, {});
  const auto loop = WhileLoop(
      p.device, {start},
      [&](const Scope& s, std::span<const Output> v) {
        return ops::Less(s, v[0], Constant(s, Tensor::Scalar<float>(1000)));
      },
      [&](const Scope& s, std::span<const Output> v) {
        return std::vector<Output>{ops::AddV2(s, v[0], v[0])};
      });
  Open();
  EXPECT_EQ(p.Eval(loop[0], {{start, Tensor::Scalar<float>(3)}}).scalar<float>(), 1536);
  EXPECT_EQ(p.Eval(loop[0], {{start, Tensor::Scalar<float>(5000)}}).scalar<float>(), 5000);
}

TEST_P(SessionsTest, TakesOneBranchOnly) {
  const Output x = Placeholder(p.root, kFloat, {});
  const Output zero = Constant(p.device, Tensor::Scalar<float>(0));
  const auto out = Cond(
      p.device, ops::Greater(p.device, x, zero),
      [&](const Scope& s) { return std::vector<Output>{ops::Sqrt(s, x)}; },
      [&](const Scope& s) {
        return std::vector<Output>{ops::Neg(s.WithDevice("/device:CPU:0"), x)};
      });
  const Output after = ops::AddV2(p.On(1), out[0], out[0]);
  Open();
  EXPECT_EQ(p.Eval(after, {{x, Tensor::Scalar<float>(9)}}).scalar<float>(), 6);
  EXPECT_EQ(p.Eval(after, {{x, Tensor::Scalar<float>(-9)}}).scalar<float>(), 18);
}

TEST_P(SessionsTest, IsSharedByTwoSessions) {
  const Output x = Placeholder(p.root, kFloat, {100});
  Output y = x;
  for (int i = 0; i < 20; ++i) {
    y = ops::AddV2(p.On(i % 2), y, Constant(p.On(i % 2), Filled(100, 1)));
  }
  Open();
  std::vector<std::thread> users;
  for (int u = 0; u < 2; ++u) {
    users.emplace_back([&, u] {
      const std::unique_ptr<ClientSession> session = p.NewSession();
      for (int i = 0; i < 10; ++i) {
        const float start = static_cast<float>(100 * u + i);
        const auto values = session->Run({{x.name(), Filled(100, start)}}, {y.name()});
        ASSERT_TRUE(values.ok()) << values.status();
        EXPECT_TRUE(TensorsEqual((*values)[0], Filled(100, start + 20)));
      }
    });
  }
  for (std::thread& user : users) user.join();
}

TEST_P(SessionsTest, GivesIsolatedSessionsVariablesOfTheirOwn) {
  const Variable w =
      MakeVariable(p.device, "w", Constant(p.device, Floats({1})), {.use_resource = true});
  const Operation add = AssignAdd(p.device, w, Constant(p.device, Floats({1})));
  const Operation init = InitializeVariables(p.root);
  p.config.set_isolate_session_state(true);
  Open();
  p.RunTargets({init});
  p.RunTargets({add});
  const std::unique_ptr<ClientSession> other = p.NewSession();
  ASSERT_TRUE(other->Run({}, {}, {init.name()}).ok());
  const auto value = other->Run({}, {w.read.name()});
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_TRUE(TensorsEqual((*value)[0], Floats({1})));
  EXPECT_TRUE(TensorsEqual(p.Eval(w.read), Floats({2})));
}

// ---- training ----

using Model = Output (*)(const Scope&, const Output&);

// The same numbers for everybody.
Tensor Noise(const Shape& shape, uint32_t seed) {
  Tensor t(kFloat, shape);
  for (float& x : t.flat<float>()) {
    seed = seed * 1664525u + 1013904223u;
    x = (static_cast<float>(seed >> 8) / (1 << 24) - 0.5f) * 0.4f;
  }
  return t;
}

Variable Weights(const Scope& s, const std::string& name, const Shape& shape) {
  const uint32_t seed = static_cast<uint32_t>(name[0]) * 31 + static_cast<uint32_t>(name[2]);
  return MakeVariable(s, name, Constant(s, Noise(shape, seed)), {.use_resource = true});
}

Output Dense(const Scope& s, const std::string& name, const Output& x, int64_t in, int64_t out) {
  return ops::BiasAdd(s, ops::MatMul(s, x, Weights(s, name + "_w", {in, out}).read),
                      Weights(s, name + "_b", {out}).read);
}

Output Convolve(const Scope& s, const std::string& name, const Output& x, int64_t in, int64_t out) {
  const Output y = ops::BiasAdd(
      s, ops::Conv2D(s, x, Weights(s, name + "_w", {5, 5, in, out}).read, {1, 1, 1, 1}, "SAME"),
      Weights(s, name + "_b", {out}).read);
  return ops::MaxPool(s, ops::Relu(s, y), {1, 2, 2, 1}, {1, 2, 2, 1}, "SAME");
}

Output Mlp(const Scope& s, const Output& x) {
  const Output a = ops::Relu(s, Dense(s, "a", x, 784, 32));
  return Dense(s, "c", ops::Relu(s, Dense(s, "b", a, 32, 32)), 32, 10);
}

Output Cnn(const Scope& s, const Output& x) {
  const Output image = ops::Reshape(s, x, {-1, 28, 28, 1});
  const Output y = Convolve(s, "b", Convolve(s, "a", image, 1, 4), 4, 8);
  const Output flat = ops::Reshape(s, y, {-1, 7 * 7 * 8});
  return Dense(s, "d", ops::Relu(s, Dense(s, "c", flat, 7 * 7 * 8, 16)), 16, 10);
}

// Losses of three steps, and all variables after them.
std::vector<Tensor> Train(Program& p, Model model, const std::string& optimizer, int threads) {
  constexpr int64_t kBatch = 8;
  const Output x = Placeholder(p.root.WithOpName("x"), kFloat, {kBatch, 784});
  const Output y = Placeholder(p.root.WithOpName("y"), kFloat, {kBatch, 10});
  const Output loss = ReduceMean(p.device, SoftmaxCrossEntropy(p.device, model(p.device, x), y));
  auto made = OptimizerByName(optimizer, 0.05f);
  EXPECT_TRUE(made.ok()) << made.status();
  const auto train = (*made)->Minimize(p.device, loss, nullptr);
  EXPECT_TRUE(train.ok()) << train.status();
  const Operation init = InitializeVariables(p.root);
  p.Open(threads);
  p.RunTargets({init});
  Tensor labels(kFloat, {kBatch, 10});
  for (int64_t i = 0; i < labels.num_elements(); ++i) {
    labels.data<float>()[i] = i % 10 == i / 10 % 10 ? 1.0f : 0.0f;
  }
  std::vector<Tensor> results;
  for (int step = 0; step < 3; ++step) {
    const auto values =
        p.Run({{x, Noise({kBatch, 784}, 77 + step)}, {y, labels}}, {loss}, {*train});
    EXPECT_TRUE(values.ok()) << values.status();
    if (!values.ok()) return results;
    results.push_back((*values)[0]);
  }
  for (const Variable& variable : Variables(p.graph)) results.push_back(p.Eval(variable.read));
  return results;
}

class TrainingTest : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, TrainingTest, ::testing::ValuesIn(TrainingKinds()),
                         [](const auto& info) { return std::string(info.param.name); });

// Bit for bit where the kind promises no tolerance.
bool SameValues(const Tensor& a, const Tensor& b, double tolerance) {
  if (tolerance == 0) return TensorsEqual(a, b);
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  if (a.dtype() != kFloat) return TensorsEqual(a, b);
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    const double x = a.data<float>()[i], y = b.data<float>()[i];
    if (!(std::abs(x - y) <= tolerance * (1 + std::abs(y)))) return false;
  }
  return true;
}

void ExpectSameTraining(const Kind& kind, Model model, const std::string& optimizer) {
  ASSERT_EQ(Obstacle(), "");
  Program reference("CPU");
  const std::vector<Tensor> expected = Train(reference, model, optimizer, 2);
  SetFakeDeviceOptions({.jitter_seed = kind.jitter_seed});
  Program p(kind.type);
  Prepare(kind, &p.config);
  const std::vector<Tensor> found = Train(p, model, optimizer, kind.threads);
  SetFakeDeviceOptions({});
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(SameValues(found[i], expected[i], kind.tolerance))
        << i << ": " << found[i].DebugString() << " where the CPU has "
        << expected[i].DebugString();
  }
  if (p.simulated()) {
    EXPECT_GT(p.machine()->num_operations(), 30);
  }
  ExpectNothingLeft(p);
}

TEST_P(TrainingTest, AnMlpLearnsWhatItLearnsOnTheCpu) {
  for (const char* optimizer : {"sgd", "momentum", "adam"}) {
    SCOPED_TRACE(optimizer);
    ExpectSameTraining(GetParam(), Mlp, optimizer);
  }
}

TEST_P(TrainingTest, ACnnLearnsWhatItLearnsOnTheCpu) {
  ExpectSameTraining(GetParam(), Cnn, "momentum");
}

// ---- when something is wrong ----

class FailuresTest : public ::testing::Test {
 protected:
  FailuresTest() : p("FAKE") {
    x = Placeholder(p.root, kFloat, {100});
    y = ops::Neg(p.device.WithOpName("first"), x);
    z = ops::Exp(p.device.WithOpName("second"), y);
    w = MakeVariable(p.device, "w", Constant(p.device, Filled(100, 1)), {.use_resource = true});
    train = AssignAdd(p.device, w, z);
    init = InitializeVariables(p.root);
    p.Open();
    p.RunTargets({init});
  }
  ~FailuresTest() override { ExpectNothingLeft(p); }
  StatusOr<std::vector<Tensor>> Run(std::chrono::milliseconds limit = {}) {
    return p.Run({{x, Filled(100, 0)}}, {z}, {train}, limit);
  }
  void ExpectItWorks(float sum) {
    const auto values = Run();
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(TensorsEqual((*values)[0], Filled(100, 1)));
    EXPECT_TRUE(TensorsEqual(p.Eval(w.read), Filled(100, sum)));
  }
  Program p;
  Output x, y, z;
  Variable w;
  Operation train, init;
};

TEST_F(FailuresTest, AKernelThatFailsLaterIsNamedWithItsDevice) {
  p.machine()->FailNext("first", errors::DataLoss("cosmic ray"));
  const auto values = Run();
  EXPECT_EQ(values.status().code(), StatusCode::kDataLoss) << values.status();
  EXPECT_THAT(values.status().ToString(),
              AllOf(HasSubstr("cosmic ray"), HasSubstr("{{node first}}"),
                    HasSubstr("/job:localhost/replica:0/task:0/device:FAKE:0")));
  // What was to be added was garbage: nothing was.
  EXPECT_TRUE(TensorsEqual(p.Eval(w.read), Filled(100, 1)));
  ExpectItWorks(2);
}

TEST_F(FailuresTest, ACopyThatFailsIsNamed) {
  p.machine()->FailNextCopies(errors::Internal("no carrier"));
  const auto values = Run();
  EXPECT_THAT(values.status().ToString(), AllOf(HasSubstr("no carrier"), HasSubstr("FAKE:0")));
  ExpectItWorks(2);
}

TEST_F(FailuresTest, MemoryThatIsNotThereIsNamed) {
  p.machine()->FailNextAllocations();
  const auto values = Run();
  EXPECT_TRUE(errors::IsResourceExhausted(values.status())) << values.status();
  EXPECT_THAT(values.status().ToString(),
              AllOf(HasSubstr("OOM when allocating tensor with shape[100]"),
                    HasSubstr("/device:FAKE:0"), HasSubstr("[[{{node ")));
  ExpectItWorks(2);
}

TEST_F(FailuresTest, AStuckDeviceIsToldByTheDeadline) {
  ExpectItWorks(2);  // the plan is there: the step is at the gate long before its deadline
  p.machine()->CloseGate("second");
  const auto values = Run(std::chrono::seconds(2));
  EXPECT_TRUE(errors::IsDeadlineExceeded(values.status())) << values.status();
  EXPECT_THAT(values.status().ToString(),
              AllOf(HasSubstr("{{node second}}"),
                    HasSubstr("/job:localhost/replica:0/task:0/device:FAKE:0")));
  p.machine()->OpenGate("second");
  // What had been enqueued has been done.
  EXPECT_TRUE(p.machine()->Synchronize(std::chrono::seconds(30)).ok());
  EXPECT_TRUE(TensorsEqual(p.Eval(w.read), Filled(100, 3)));
  ExpectItWorks(4);
}

TEST_F(FailuresTest, ASessionThatIsClosedInAStepLeavesNothing) {
  p.machine()->CloseGate("second");
  std::thread runner([&] {
    const auto values = Run();
    EXPECT_TRUE(errors::IsCancelled(values.status())) << values.status();
  });
  EXPECT_TRUE(p.machine()->WaitUntilSomethingStands());
  EXPECT_TRUE(p.session->Close().ok());
  runner.join();
  p.machine()->OpenGate("second");
}

TEST_F(FailuresTest, AnErrorOfTheHostEndsTheDevicesPartToo) {
  const Output bad = ops::CheckNumerics(p.host().WithOpName("check"),
                                        ops::Log(p.host(), ops::Neg(p.device, z)), "not a number");
  p.session = p.NewSession();
  const auto values = p.Run({{x, Filled(100, 0)}}, {bad});
  EXPECT_TRUE(errors::IsInvalidArgument(values.status())) << values.status();
  EXPECT_THAT(values.status().ToString(), HasSubstr("{{node check}}"));
  ExpectItWorks(2);
}

TEST_F(FailuresTest, AVariableWhoseFirstValueWasLostHasNone) {
  const Variable v = MakeVariable(
      p.device, "v", ops::Neg(p.device.WithOpName("value"), Constant(p.device, Filled(9, 1))),
      {.use_resource = true});
  p.session = p.NewSession();
  p.machine()->FailNext("value", errors::Internal("lost"));
  EXPECT_FALSE(p.Run({}, {}, {v.initializer}).ok());
  EXPECT_FALSE(p.Run({}, {v.read}).ok());
  p.RunTargets({v.initializer});
  EXPECT_TRUE(TensorsEqual(p.Eval(v.read), Filled(9, -1)));
}

}  // namespace
}  // namespace millrace::testing
