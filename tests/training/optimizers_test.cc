// SPDX-License-Identifier: Apache-2.0
// Every optimizer against its formula, computed here in double precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "base/errors.h"
#include "millrace/core.h"

namespace millrace {
namespace {

constexpr double kInitial[] = {3.0, -2.0, 0.5};
constexpr double kCurvature[] = {1.0, 0.25, 4.0};
constexpr int kSteps = 25;

// One element under an optimizer: changes the value, given the gradient and its slots.
struct Element {
  double value;
  std::map<std::string, double> slots;
};
using Rule = std::function<void(Element&, double gradient, int step)>;

struct OptimizerCase {
  std::string name;
  std::function<std::unique_ptr<Optimizer>()> make;
  std::map<std::string, double> slots;  // node name after "w/", initial value
  Rule rule;
};

std::vector<OptimizerCase> AllOptimizers() {
  return {
      {"sgd",
       [] { return GradientDescent({.learning_rate = 0.1f}); },
       {},
       [](Element& e, double g, int) { e.value -= 0.1f * g; }},
      {"momentum",
       [] { return Momentum({.learning_rate = 0.05f, .momentum = 0.8f}); },
       {{"Momentum", 0}},
       [](Element& e, double g, int) {
         double& m = e.slots["Momentum"];
         m = 0.8f * m + g;
         e.value -= 0.05f * m;
       }},
      {"nesterov",
       [] { return Momentum({.learning_rate = 0.05f, .momentum = 0.8f, .use_nesterov = true}); },
       {{"Momentum", 0}},
       [](Element& e, double g, int) {
         double& m = e.slots["Momentum"];
         m = 0.8f * m + g;
         e.value -= 0.05f * (g + 0.8f * m);
       }},
      {"adagrad",
       [] { return Adagrad({.learning_rate = 0.3f, .initial_accumulator = 0.2f}); },
       {{"Adagrad", 0.2f}},
       [](Element& e, double g, int) {
         double& sum = e.slots["Adagrad"];
         sum += g * g;
         e.value -= 0.3f * g / std::sqrt(sum);
       }},
      {"rmsprop",
       [] {
         return RmsProp(
             {.learning_rate = 0.02f, .decay = 0.7f, .momentum = 0.5f, .epsilon = 1e-3f});
       },
       {{"RMSProp", 1}, {"RMSProp_1", 0}},
       [](Element& e, double g, int) {
         double &mean_square = e.slots["RMSProp"], &momentum = e.slots["RMSProp_1"];
         mean_square = 0.7f * mean_square + (1 - 0.7f) * g * g;
         momentum = 0.5f * momentum + 0.02f * g / std::sqrt(mean_square + 1e-3f);
         e.value -= momentum;
       }},
      {"adam",
       [] {
         return Adam({.learning_rate = 0.1f, .beta1 = 0.8f, .beta2 = 0.95f, .epsilon = 1e-4f});
       },
       {{"Adam", 0}, {"Adam_1", 0}},
       [](Element& e, double g, int step) {
         double &m = e.slots["Adam"], &v = e.slots["Adam_1"];
         m = 0.8f * m + (1 - 0.8f) * g;
         v = 0.95f * v + (1 - 0.95f) * g * g;
         const double rate =
             0.1f * std::sqrt(1 - std::pow(0.95f, step + 1)) / (1 - std::pow(0.8f, step + 1));
         e.value -= rate * m / (std::sqrt(v) + 1e-4f);
       }},
  };
}

Tensor Values(DataType dtype, std::span<const double> values) {
  Tensor t(dtype, Shape({static_cast<int64_t>(values.size())}));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == kDouble) {
      t.data<double>()[i] = values[i];
    } else {
      t.data<float>()[i] = static_cast<float>(values[i]);
    }
  }
  return t;
}

std::vector<double> ToDoubles(const Tensor& t) {
  std::vector<double> values;
  for (int64_t i = 0; i < t.num_elements(); ++i) {
    values.push_back(t.dtype() == kDouble ? t.data<double>()[i] : t.data<float>()[i]);
  }
  return values;
}

// loss = sum(c * w^2 / 2), so that the gradient is c * w.
Output Bowl(const Scope& s, const Variable& w) {
  const DataType dtype = w.dtype();
  const Output half_c = Constant(s, Values(dtype, std::vector<double>{0.5, 0.125, 2.0}));
  return ReduceSum(s, ops::Mul(s, half_c, ops::Square(s, w.read)));
}

struct Kind {
  bool use_resource;
  DataType dtype;
};

class OptimizerTest : public ::testing::TestWithParam<std::tuple<int, Kind>> {
 protected:
  const OptimizerCase case_ = AllOptimizers()[std::get<0>(GetParam())];
  const Kind kind_ = std::get<1>(GetParam());

  void ExpectNear(const Tensor& got, const std::function<double(const Element&)>& want,
                  const std::vector<Element>& elements, const std::string& what) {
    ASSERT_EQ(got.dtype(), kind_.dtype) << what;
    const std::vector<double> values = ToDoubles(got);
    ASSERT_EQ(values.size(), elements.size()) << what;
    // The powers of Adam's betas are float for variables of all types, as in TensorFlow.
    const double tolerance = kind_.dtype == kFloat ? 2e-5 : case_.name == "adam" ? 1e-6 : 1e-12;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double w = want(elements[i]);
      EXPECT_NEAR(values[i], w, tolerance * (1 + std::abs(w))) << what << " [" << i << "]";
    }
  }
};

TEST_P(OptimizerTest, FollowsItsFormulaInVariablesAndSlots) {
  Graph graph;
  const Scope root = graph.root();
  const Variable w = MakeVariable(root, "w", Constant(root, Values(kind_.dtype, kInitial)),
                                  {.use_resource = kind_.use_resource});
  const Variable step = GlobalStep(root);
  const auto train = case_.make()->Minimize(root, Bowl(root, w), &step);
  ASSERT_TRUE(train.ok()) << train.status();
  const Operation init = InitializeVariables(root);
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  Status status = session->RunTargets({init});
  ASSERT_TRUE(status.ok()) << status;

  std::vector<Element> elements;
  for (const double value : kInitial) elements.push_back({value, case_.slots});
  for (int i = 0; i < kSteps; ++i) {
    status = session->RunTargets({*train});
    ASSERT_TRUE(status.ok()) << status;
    for (std::size_t k = 0; k < elements.size(); ++k) {
      case_.rule(elements[k], kCurvature[k] * elements[k].value, i);
    }
  }

  const auto value = session->Eval(w.read);
  ASSERT_TRUE(value.ok()) << value.status();
  ExpectNear(*value, [](const Element& e) { return e.value; }, elements, "w");
  for (const auto& [slot, initial] : case_.slots) {
    const Operation read = graph.FindOperation("w/" + slot + "/read");
    ASSERT_TRUE(read.valid()) << slot;
    const auto slot_value = session->Eval(read.output(0));
    ASSERT_TRUE(slot_value.ok()) << slot_value.status();
    ExpectNear(*slot_value, [&](const Element& e) { return e.slots.at(slot); }, elements, slot);
  }
  const auto steps = session->Eval(step.read);
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_EQ(steps->scalar<int64_t>(), kSteps);
}

TEST_P(OptimizerTest, KeepsSlotsAndUpdatesBesideTheirVariable) {
  Graph graph;
  const Scope root = graph.root();
  const Variable w = MakeVariable(root.WithDevice("/job:ps/task:1"), "w",
                                  Constant(root, Values(kind_.dtype, kInitial)),
                                  {.use_resource = kind_.use_resource});
  const Scope worker = root.WithDevice("/job:worker/task:0");
  ASSERT_TRUE(case_.make()->Minimize(worker, Bowl(worker, w), nullptr).ok());
  std::vector<std::string> beside;
  for (const Operation& op : graph.operations()) {
    const AttrValue colocated = op.attr("_class");
    const auto* groups = colocated.get_if<std::vector<std::string>>();
    if (groups != nullptr && *groups == std::vector<std::string>{"loc:@w"}) {
      beside.push_back(op.name());
      EXPECT_EQ(op.device(), w.handle.op().device()) << op.name();
    }
  }
  for (const auto& [slot, initial] : case_.slots) {
    EXPECT_THAT(beside, ::testing::Contains("w/" + slot));
    // A slot is no variable of the model.
    for (const Variable& v : Variables(graph, kTrainableVariables))
      EXPECT_NE(v.name(), "w/" + slot);
  }
  EXPECT_THAT(beside, ::testing::Contains(::testing::EndsWith("/update_w")));
}

INSTANTIATE_TEST_SUITE_P(
    All, OptimizerTest,
    ::testing::Combine(::testing::Range(0, static_cast<int>(AllOptimizers().size())),
                       ::testing::Values(Kind{false, kFloat}, Kind{true, kFloat},
                                         Kind{false, kDouble}, Kind{true, kDouble})),
    [](const auto& info) {
      const Kind kind = std::get<1>(info.param);
      return AllOptimizers()[std::get<0>(info.param)].name +
             (kind.use_resource ? "_resource_" : "_reference_") +
             std::string(DataTypeName(kind.dtype));
    });

TEST(Optimizers, LeaveVariablesAloneThatTheLossDoesNotDependOn) {
  Graph graph;
  const Scope root = graph.root();
  const Variable w = MakeVariable(root, "w", Constant(root, Values(kFloat, kInitial)));
  const Variable other = MakeVariable(root, "other", Constant(root, Values(kFloat, kInitial)));
  const auto train = Adam({})->Minimize(root, Bowl(root, w), nullptr);
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_FALSE(graph.FindOperation("other/Adam").valid());
  auto session = Session::Create(graph);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->RunTargets({InitializeVariables(root)}).ok());
  ASSERT_TRUE(session->RunTargets({*train}).ok());
  const auto value = session->Eval(other.read);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_TRUE(TensorsEqual(*value, Values(kFloat, kInitial)));
}

TEST(Optimizers, RefuseALossThatDependsOnNoVariable) {
  Graph graph;
  const Scope root = graph.root();
  MakeVariable(root, "w", Constant(root, Values(kFloat, kInitial)));
  const Status status =
      GradientDescent({})->Minimize(root, Constant(root, Tensor::Scalar(1.0f)), nullptr).status();
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
}

TEST(Optimizers, RefuseAGraphWithoutVariables) {
  Graph graph;
  const Scope root = graph.root();
  const Status status =
      GradientDescent({})->Minimize(root, Constant(root, Tensor::Scalar(1.0f)), nullptr).status();
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
}

TEST(Optimizers, AreFoundByNameAndListedForANameThatIsNone) {
  for (const char* name : {"sgd", "momentum", "adagrad", "rmsprop", "adam"}) {
    EXPECT_TRUE(OptimizerByName(name, 0.1f).ok()) << name;
  }
  const Status status = OptimizerByName("adamax", 0.1f).status();
  EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(Message(status)),
              ::testing::AllOf(::testing::HasSubstr("adamax"), ::testing::HasSubstr("rmsprop")));
}

// The counter counts finished steps: whoever reads it after the train op sees the update.
TEST(Optimizers, CallTheirOpAsTensorFlowDoes) {
  for (const bool with_step : {false, true}) {
    Graph graph;
    const Scope root = graph.root();
    const Variable w = MakeVariable(root, "w", Constant(root, Tensor::Scalar(1.0f)));
    const Output loss = ops::Mul(root, w.read, w.read);
    const Variable step = GlobalStep(root);
    const auto adam = Adam({})->Minimize(root, loss, with_step ? &step : nullptr);
    ASSERT_TRUE(adam.ok()) << adam.status();
    EXPECT_EQ(adam->name(), "Adam");
    const auto more = Adam({})->Minimize(root.Named("more"), loss, with_step ? &step : nullptr);
    ASSERT_TRUE(more.ok()) << more.status();
    EXPECT_EQ(more->name(), "more/Adam");
  }
}

TEST(Optimizers, NameTheLineThatAsksForThem) {
  Graph graph;
  const Scope root = graph.root();
  const Variable w = MakeVariable(root, "w", Constant(root, Tensor::Scalar(1.0f)));
  const Output loss = ops::NextAfter(root, w.read, w.read);
  const int line = std::source_location::current().line() + 1;
  const auto train = GradientDescent({})->Minimize(root, loss, nullptr);
  EXPECT_TRUE(errors::IsUnimplemented(train.status())) << train.status();
  EXPECT_THAT(std::string(Message(train.status())),
              ::testing::HasSubstr("(at optimizers_test.cc:" + std::to_string(line) + ")"));
}

TEST(Optimizers, CountAStepOnlyAfterEveryUpdate) {
  Graph graph;
  const Scope root = graph.root();
  const Variable w = MakeVariable(root, "w", Constant(root, Values(kFloat, kInitial)));
  const Variable step = GlobalStep(root);
  const auto train = GradientDescent({})->Minimize(root, Bowl(root, w), &step);
  ASSERT_TRUE(train.ok()) << train.status();
  const Operation update = graph.FindOperation("GradientDescent/update_w");
  ASSERT_TRUE(update.valid());
  const auto text = graph.ToText();
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, ::testing::HasSubstr("input: \"^GradientDescent/update_w\""));
}

// Two variables of one leaf name in different scopes are two variables, of either kind.
TEST(Optimizers, TellVariablesOfDifferentScopesApart) {
  for (const bool use_resource : {false, true}) {
    Graph graph;
    const Scope root = graph.root();
    std::vector<Variable> variables;
    for (const char* scope : {"a", "b"}) {
      const Scope s = root.Named(scope);
      variables.push_back(MakeVariable(s, "w", Constant(s, Values(kFloat, kInitial)),
                                       {.use_resource = use_resource}));
    }
    const auto train =
        GradientDescent({.learning_rate = 1})->Minimize(root, Bowl(root, variables[0]), nullptr);
    ASSERT_TRUE(train.ok()) << train.status();
    auto session = Session::Create(graph);
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE(session->RunTargets({InitializeVariables(root)}).ok());
    ASSERT_TRUE(session->RunTargets({*train}).ok());
    const auto changed = session->Eval(variables[0].read), kept = session->Eval(variables[1].read);
    ASSERT_TRUE(changed.ok() && kept.ok());
    EXPECT_FALSE(TensorsEqual(*changed, Values(kFloat, kInitial)));
    EXPECT_TRUE(TensorsEqual(*kept, Values(kFloat, kInitial))) << "use_resource " << use_resource;
  }
}

}  // namespace
}  // namespace millrace
