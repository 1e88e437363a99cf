// SPDX-License-Identifier: Apache-2.0
#include "tools/check_layers/texts.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace millrace::layers {
namespace {

std::string Says(const std::string& literals) {
  return "Status Check(int k) {\n  return errors::InvalidArgument(" + literals + ", k);\n}\n";
}

std::vector<Violation> Both(const std::string& on_cpu, const std::string& on_device,
                            const std::string& device_path = "kernels/gpu/row_bodies.cc") {
  return CheckTexts({{"kernels/nn/rows.cc", Says(on_cpu)}, {device_path, Says(on_device)}});
}

TEST(TextsTest, ATextOfBothTheCpuAndAnAcceleratorIsAViolation) {
  for (const char* path : {"kernels/gpu/row_bodies.cc", "kernels/accelerator/rows.cc",
                           "kernels/cuda/rows.cu", "kernels/fake/rows.h"}) {
    const auto violations =
        Both(R"("there must be as many rows as ")", R"("there must be as many rows as ")", path);
    ASSERT_EQ(violations.size(), 1u) << path;
    EXPECT_EQ(violations[0].path, path);
    EXPECT_EQ(violations[0].line, 2);
    EXPECT_NE(violations[0].message.find("kernels/nn/rows.cc"), std::string::npos);
  }
}

TEST(TextsTest, TextsAreComparedAsTheCompilerJoinsThem) {
  EXPECT_EQ(
      Both(R"("there must be as " "many rows as ")", "\"there must be\"\n    \" as many rows as \"")
          .size(),
      1u);
  EXPECT_EQ(
      Both(R"("a \"quoted\" name of 20 letters")", R"("a \"quoted\" name of 20 letters")").size(),
      1u);
}

TEST(TextsTest, LaterArgumentsAndNestedCallsCount) {
  EXPECT_EQ(Both(R"(Name('"', f(k)), " is not one of the rows")",
                 R"("row ", StrCat(" is not one of the rows"))")
                .size(),
            1u);
}

TEST(TextsTest, DifferentOrShortTextsAreNoViolations) {
  EXPECT_TRUE(
      Both(R"("there must be as many rows as ")", R"("there must be a row for each ")").empty());
  EXPECT_TRUE(Both(R"("too many rows: ")", R"("too many rows: ")").empty());
}

TEST(TextsTest, WhatIsNoErrorIsNotLookedAt) {
  const std::string log = "void F() { Log(\"there must be as many rows as \"); }\n";
  EXPECT_TRUE(CheckTexts({{"kernels/nn/rows.cc", log}, {"kernels/gpu/rows.cc", log}}).empty());
  const std::string commented =
      "Status F() {\n  return errors::Internal(k  // \"there must be as many rows as \"\n  );\n}\n";
  EXPECT_TRUE(
      CheckTexts({{"kernels/nn/rows.cc", commented}, {"kernels/gpu/rows.cc", commented}}).empty());
}

TEST(TextsTest, TestsAndOtherFoldersMaySayIt) {
  const std::string text = Says(R"("there must be as many rows as ")");
  EXPECT_TRUE(
      CheckTexts({{"kernels/nn/rows.cc", text}, {"kernels/gpu/rows_test.cc", text}}).empty());
  EXPECT_TRUE(CheckTexts({{"ops/rows.cc", text}, {"kernels/gpu/rows.cc", text}}).empty());
  EXPECT_TRUE(
      CheckTexts({{"kernels/gpu/rows.cc", text}, {"kernels/accelerator/rows.cc", text}}).empty());
}

TEST(TextsTest, CodeThatEndsWithinATextIsRead) {
  EXPECT_TRUE(CheckTexts({{"kernels/nn/rows.cc", "errors::Internal(\"there must be as many \\"},
                          {"kernels/gpu/rows.cc", "errors::Internal('"}})
                  .empty());
}

}  // namespace
}  // namespace millrace::layers
