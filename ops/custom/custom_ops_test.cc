// SPDX-License-Identifier: Apache-2.0
#include "ops/custom/custom_ops.h"

#include <gtest/gtest.h>

#include "ops/all_ops.h"

namespace millrace {
namespace {

// In the order of the file: once the registries have read the ops, none is added.
TEST(CustomOpsTest, AreAddedAllOrNone) {
  std::vector<CustomOp> ops;
  ops.emplace_back("First").Input("x: T").Output("y: T").Attr("T: {float, double}").Doc("As x.");
  ops.emplace_back("MatMul").Output("y: float");
  const Status taken = AddCustomOps(ops, "lib.so");
  EXPECT_EQ(taken.code(), StatusCode::kAlreadyExists) << taken;
  EXPECT_NE(taken.message().find("lib.so"), std::string::npos) << taken;
  ops.pop_back();
  EXPECT_EQ(AddCustomOps(ops, "lib.so"), OkStatus());
  EXPECT_EQ(AddCustomOps(ops, "other.so").code(), StatusCode::kAlreadyExists);
}

TEST(CustomOpsTest, AreBounded) {
  std::vector<CustomOp> ops;
  for (int i = 0; i < 256; ++i) ops.emplace_back("Op" + std::to_string(i));
  EXPECT_EQ(AddCustomOps(ops, "many.so").code(), StatusCode::kResourceExhausted);
}

TEST(CustomOpsTest, AreRegisteredBesideTheEnginesOwn) {
  OpRegistry registry;
  ASSERT_EQ(RegisterAllOps(registry), OkStatus());
  ASSERT_EQ(RegisterCustomOps(registry), OkStatus());
  const OpInfo* const op = registry.Find("First");
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(op->def.summary(), "As x.");
  EXPECT_EQ(op->def.attr(0).name(), "T");
  EXPECT_NE(FindCustomOp("First"), nullptr);
  EXPECT_EQ(FindCustomOp("MatMul"), nullptr);

  std::vector<CustomOp> late;
  late.emplace_back("Late");
  const Status status = AddCustomOps(std::move(late), "late.so");
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(FindCustomOp("Late"), nullptr);
}

}  // namespace
}  // namespace millrace
