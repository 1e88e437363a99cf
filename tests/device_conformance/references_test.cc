// SPDX-License-Identifier: Apache-2.0
// Variables that are references, TensorFlow 1's, on every kind of device.
#include <gtest/gtest.h>

#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "millrace/core.h"
#include "millrace/ops.h"
#include "tests/device_conformance/kinds.h"
#include "tests/device_conformance/program.h"

namespace millrace::testing {
namespace {

class ReferencesTest : public ::testing::TestWithParam<Kind> {
 protected:
  ReferencesTest() : p(GetParam().type) {
    Prepare(GetParam(), &p.config);
    p.config.set_allow_soft_placement(false);  // all on the device, or an error
  }
  void SetUp() override { ASSERT_EQ(Obstacle(), ""); }
  void TearDown() override {
    if (p.master != nullptr) ExpectNothingLeft(p);
  }
  Output Values(const std::vector<float>& values) {
    return Constant(p.device, Tensor::FromValues<float>(values, Shape({3, 2})));
  }
  Variable Make(const std::string& name, float first, bool handle) {
    return MakeVariable(p.device, name,
                        Values({first, first + 1, first + 2, first + 3, first + 4, first + 5}),
                        {.use_resource = handle});
  }
  Program p;
};

INSTANTIATE_TEST_SUITE_P(Kinds, ReferencesTest, ::testing::ValuesIn(SessionKinds()),
                         [](const auto& info) { return std::string(info.param.name); });

// The same update of a variable and its slots, by reference and by handle.
struct Twin {
  std::string op;
  int slots;
  int scalars_before;  // inputs between the slots and the gradient
  int scalars_after;   // behind the gradient
  bool rows = false;   // indices come behind the gradient, or the scalars behind them
};

// Adds node `op` on the device; fails the test's graph if the op does not take such inputs.
Operation Add(const Scope& s, const std::string& op, const std::vector<Output>& inputs) {
  const std::vector<Input> given(inputs.begin(), inputs.end());
  return s.WithOpName("update").AddOp(op, given, {}, std::source_location::current());
}

TEST_P(ReferencesTest, AreUpdatedAsVariablesBehindHandles) {
  const std::vector<Twin> twins = {{"ApplyGradientDescent", 0, 1, 0},
                                   {"ApplyMomentum", 1, 1, 1},
                                   {"ApplyAdagrad", 1, 1, 0},
                                   {"ApplyAdadelta", 2, 3, 0},
                                   {"ApplyAdam", 2, 6, 0},
                                   {"ApplyRMSProp", 2, 4, 0},
                                   {"ApplyCenteredRMSProp", 3, 4, 0},
                                   {"ApplyProximalGradientDescent", 0, 3, 0},
                                   {"ApplyProximalAdagrad", 1, 3, 0},
                                   {"ApplyFtrl", 2, 0, 4},
                                   {"SparseApplyMomentum", 1, 1, 1, true},
                                   {"SparseApplyAdagrad", 1, 1, 0, true},
                                   {"SparseApplyAdadelta", 2, 3, 0, true},
                                   {"SparseApplyRMSProp", 2, 4, 0, true},
                                   {"SparseApplyCenteredRMSProp", 3, 4, 0, true},
                                   {"SparseApplyProximalAdagrad", 1, 3, 0, true},
                                   {"SparseApplyProximalGradientDescent", 0, 3, 0, true},
                                   {"SparseApplyFtrl", 2, 0, 4, true}};
  const Output gradient = Values({0.5f, -1, 0.25f, 2, -0.125f, 1});
  const Output indices = Constant(p.device, Tensor::FromValues<int64_t>({2, 0, 2}));
  const Output scalar = Constant(p.device, Tensor::Scalar<float>(0.25f));
  const Output power = Constant(p.device, Tensor::Scalar<float>(-0.5f));  // of a learning rate
  std::vector<Operation> updates;
  std::vector<Output> by_reference, by_handle;
  for (const Twin& twin : twins) {
    for (const bool handle : {false, true}) {
      std::vector<Output> inputs;
      auto& read = handle ? by_handle : by_reference;
      for (int i = 0; i <= twin.slots; ++i) {
        const std::string name =
            twin.op + (handle ? "_handle_" : "_reference_") + std::to_string(i);
        const Variable variable = Make(name, static_cast<float>(10 * i + 1), handle);
        inputs.push_back(variable.handle);
        read.push_back(variable.read);
      }
      for (int i = 0; i < twin.scalars_before; ++i) inputs.push_back(scalar);
      inputs.push_back(gradient);
      if (twin.rows) inputs.push_back(indices);
      const bool powers = twin.op.ends_with("Ftrl");
      for (int i = 0; i < twin.scalars_after; ++i) {
        inputs.push_back(powers && i == twin.scalars_after - 1 ? power : scalar);
      }
      updates.push_back(Add(p.device, (handle ? "Resource" : "") + twin.op, inputs));
    }
  }
  const Operation init = InitializeVariables(p.root);
  p.Open(GetParam().threads);
  p.RunTargets({init});
  p.RunTargets(updates);
  p.RunTargets(updates);
  const auto references = p.Run({}, by_reference), handles = p.Run({}, by_handle);
  ASSERT_TRUE(references.ok()) << references.status();
  ASSERT_TRUE(handles.ok()) << handles.status();
  const Tensor first = Tensor::FromValues<float>({1, 2, 3, 4, 5, 6}, Shape({3, 2}));
  for (std::size_t i = 0; i < references->size(); ++i) {
    EXPECT_TRUE(TensorsEqual((*references)[i], (*handles)[i])) << by_reference[i].op().name();
  }
  EXPECT_FALSE(TensorsEqual((*references)[0], first)) << "nothing was updated";
}

TEST_P(ReferencesTest, TakeAdditionsAndScatters) {
  const Variable v = Make("v", 1, false);
  const Scope& s = p.device;
  const Output at = Constant(s, Tensor::FromValues<int64_t>({2, 0, 2}));
  const Output by = Values({10, -1, 2, 9, 3, 7});
  const Output cells = Constant(s, Tensor::FromValues<int64_t>({2, 1, 0, 0, 2, 1}, Shape({3, 2})));
  const Output to_cells = Constant(s, Tensor::FromValues<float>({10, 20, 30}));
  const std::vector<std::pair<Operation, std::vector<float>>> updates = {
      {Add(s, "AssignAdd", {v.handle, by}), {11, 1, 5, 13, 8, 13}},
      {Add(s, "AssignSub", {v.handle, by}), {-9, 3, 1, -5, 2, -1}},
      {Add(s, "ScatterAdd", {v.handle, at, by}), {3, 11, 3, 4, 18, 12}},
      {Add(s, "ScatterSub", {v.handle, at, by}), {-1, -7, 3, 4, -8, 0}},
      {Add(s, "ScatterMul", {v.handle, at, by}), {2, 18, 3, 4, 150, -42}},
      {Add(s, "ScatterMin", {v.handle, at, by}), {1, 2, 3, 4, 3, -1}},
      {Add(s, "ScatterMax", {v.handle, at, by}), {2, 9, 3, 4, 10, 7}},
      {Add(s, "ScatterUpdate", {v.handle, at, by}), {2, 9, 3, 4, 3, 7}},
      {Add(s, "ScatterNdAdd", {v.handle, cells, to_cells}), {21, 2, 3, 4, 5, 46}},
      {Add(s, "ScatterNdSub", {v.handle, cells, to_cells}), {-19, 2, 3, 4, 5, -34}},
      {Add(s, "ScatterNdUpdate", {v.handle, cells, to_cells}), {20, 2, 3, 4, 5, 30}}};
  const Operation init = InitializeVariables(p.root);
  p.Open(GetParam().threads);
  for (const auto& [update, values] : updates) {
    p.RunTargets({init});
    p.RunTargets({update});
    EXPECT_TRUE(TensorsEqual(p.Eval(v.read), Tensor::FromValues<float>(values, Shape({3, 2}))))
        << update.name();
  }
}

// A value that was read is somebody's share: the update goes elsewhere.
TEST_P(ReferencesTest, LeaveToReadersWhatTheyRead) {
  const Variable v = Make("v", 1, false);
  const Output before = ops::Neg(p.device, v.read);
  const Scope later = p.device.WithControlDependencies({v.read.op()});
  const Operation update = Add(later, "AssignAdd", {v.handle, Values({1, 1, 1, 1, 1, 1})});
  const Operation init = InitializeVariables(p.root);
  p.Open(GetParam().threads);
  p.RunTargets({init});
  for (int i = 0; i < 3; ++i) {
    const auto negated = p.Run({}, {before}, {update});
    ASSERT_TRUE(negated.ok()) << negated.status();
    EXPECT_EQ((*negated)[0].data<float>()[0], static_cast<float>(-1 - i));
  }
  EXPECT_EQ(p.Eval(v.read).data<float>()[5], 9);
}

TEST_P(ReferencesTest, KnowWhetherTheyHaveAValue) {
  const Variable v = Make("v", 1, false);
  const Output known = Add(p.device, "IsVariableInitialized", {v.handle}).output(0);
  const Operation init = InitializeVariables(p.root);
  p.Open(GetParam().threads);
  EXPECT_FALSE(p.Eval(known).scalar<bool>());
  const auto early = p.Run({}, {v.read});
  EXPECT_FALSE(early.ok());
  EXPECT_NE(early.status().ToString().find("uninitialized value v"), std::string::npos)
      << early.status();
  p.RunTargets({init});
  EXPECT_TRUE(p.Eval(known).scalar<bool>());
}

}  // namespace
}  // namespace millrace::testing
