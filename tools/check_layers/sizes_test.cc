// SPDX-License-Identifier: Apache-2.0
// Sizes are judged, and the table of what may be larger only falls.

#include "tools/check_layers/sizes.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace millrace::layers {
namespace {

std::string Lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "    DoIt();\n";
  return text;
}

// What is said of one file beside the entries of the table that such a tree does not meet.
std::vector<std::string> Said(const std::string& path, const std::string& text) {
  std::vector<std::string> said;
  for (const Violation& violation : CheckSizes({{path, text}})) {
    if (violation.path != "tools/check_layers/sizes.cc") said.push_back(ToString(violation));
  }
  return said;
}

TEST(SizesTest, FilesAreBounded) {
  EXPECT_TRUE(Said("graph/a.cc", Lines(kFileLines)).empty());
  const std::vector<std::string> said = Said("graph/a.cc", Lines(kFileLines + 1));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0], "graph/a.cc:1: graph/a.cc has 601 lines, 600 at most: split it");
  EXPECT_TRUE(Said("tests/a_test.cc", Lines(kFileLines + 1)).empty());
}

TEST(SizesTest, FunctionsAreBoundedFromSignatureToBrace) {
  const std::string before = "namespace a {\nint b = 0;\n\n";
  EXPECT_TRUE(Said("graph/a.cc", before + "void A::F() {\n" + Lines(78) + "}\n").empty());
  const std::vector<std::string> said =
      Said("graph/a.cc", before + "void A::F(int a,\n          int b) {\n" + Lines(78) + "}\n");
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0], "graph/a.cc:4: graph/a.cc A::F has 81 lines, 80 at most: split it");
}

TEST(SizesTest, MethodsWithinClassesAreBoundedTooAndClassesAreNot) {
  const std::string text =
      "class A {\n public:\n  void F() {\n" + Lines(79) + "  }\n" + Lines(60) + "};\n";
  const std::vector<std::string> said = Said("graph/a.h", text);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("graph/a.h:3: graph/a.h F has 81 lines"), std::string::npos) << said[0];
}

TEST(SizesTest, FoldersAreBounded) {
  Tree tree;
  for (int i = 0; i < kFolderFiles + 1; ++i) tree["graph/f" + std::to_string(i) + ".cc"] = "";
  bool said = false;
  for (const Violation& violation : CheckSizes(tree)) said |= violation.path == "graph";
  EXPECT_TRUE(said);
}

TEST(SizesTest, AnEntryThatAllowsTooMuchIsLowered) {
  const std::vector<std::string> said = Said("master/session_test.cc", Lines(1));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("lower its entry"), std::string::npos) << said[0];
}

}  // namespace
}  // namespace millrace::layers
