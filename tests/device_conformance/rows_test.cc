// SPDX-License-Identifier: Apache-2.0
// Updates of rows of variables, on every kind of device. (Those of tensors are among the goldens.)
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "millrace/core.h"
#include "millrace/ops.h"
#include "tests/device_conformance/kinds.h"
#include "tests/device_conformance/program.h"

namespace millrace::testing {
namespace {

class RowsTest : public ::testing::TestWithParam<Kind> {
 protected:
  RowsTest() : p(GetParam().type) { Prepare(GetParam(), &p.config); }
  void SetUp() override { ASSERT_EQ(Obstacle(), ""); }
  void TearDown() override {
    if (p.master != nullptr) ExpectNothingLeft(p);
  }
  // A variable of three rows, all on the device or nowhere.
  Variable Rows() {
    p.config.set_allow_soft_placement(false);
    const Tensor first = Tensor::FromValues<float>({1, 2, 3, 4, 5, 6}, Shape({3, 2}));
    return MakeVariable(p.device, "rows", Constant(p.device, first), {.use_resource = true});
  }
  // After each update from the initial value.
  void ExpectAfter(const Variable& rows,
                   const std::vector<std::pair<Operation, std::vector<float>>>& updates) {
    const Operation init = InitializeVariables(p.root);
    p.Open(GetParam().threads);
    for (const auto& [update, values] : updates) {
      p.RunTargets({init});
      p.RunTargets({update});
      EXPECT_TRUE(TensorsEqual(p.Eval(rows.read), Tensor::FromValues<float>(values, Shape({3, 2}))))
          << update.name();
    }
  }
  Program p;
};

INSTANTIATE_TEST_SUITE_P(Kinds, RowsTest, ::testing::ValuesIn(SessionKinds()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(RowsTest, OfOneIndex) {
  const Variable v = Rows();
  // The last row twice: updates of a row are made one after the other.
  const Output at = Constant(p.device, Tensor::FromValues<int64_t>({2, 0, 2}));
  const Output by =
      Constant(p.device, Tensor::FromValues<float>({10, -1, 2, 9, 3, 7}, Shape({3, 2})));
  const Scope& s = p.device;
  ExpectAfter(v, {{ops::ResourceScatterAdd(s, v.handle, at, by), {3, 11, 3, 4, 18, 12}},
                  {ops::ResourceScatterSub(s, v.handle, at, by), {-1, -7, 3, 4, -8, 0}},
                  {ops::ResourceScatterMul(s, v.handle, at, by), {2, 18, 3, 4, 150, -42}},
                  {ops::ResourceScatterMin(s, v.handle, at, by), {1, 2, 3, 4, 3, -1}},
                  {ops::ResourceScatterMax(s, v.handle, at, by), {2, 9, 3, 4, 10, 7}},
                  {ops::ResourceScatterUpdate(s, v.handle, at, by), {2, 9, 3, 4, 3, 7}}});
}

TEST_P(RowsTest, OfSeveralIndices) {
  const Variable v = Rows();
  const Output at =
      Constant(p.device, Tensor::FromValues<int64_t>({2, 1, 0, 0, 2, 1}, Shape({3, 2})));
  const Output by = Constant(p.device, Tensor::FromValues<float>({10, 20, 30}));
  const Scope& s = p.device;
  ExpectAfter(v, {{ops::ResourceScatterNdAdd(s, v.handle, at, by), {21, 2, 3, 4, 5, 46}},
                  {ops::ResourceScatterNdSub(s, v.handle, at, by), {-19, 2, 3, 4, 5, -34}},
                  {ops::ResourceScatterNdUpdate(s, v.handle, at, by), {20, 2, 3, 4, 5, 30}}});
}

}  // namespace
}  // namespace millrace::testing
