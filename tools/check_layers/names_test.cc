// SPDX-License-Identifier: Apache-2.0
#include "tools/check_layers/names.h"

#include <gtest/gtest.h>

namespace millrace::layers {
namespace {

std::vector<Violation> Check(const std::string& a, const std::string& b) {
  return CheckNames({{"a/a.h", a}, {"b/b.cc", b}});
}

TEST(NamesTest, TwoTypesOfOneNameAreReportedWithBothPlaces) {
  const auto found = Check("namespace n {\n\nstruct Plan {\n};\n}  // namespace n\n",
                           "namespace n {\nclass Plan final : public Base {\n};\n");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(ToString(found[0]),
            "b/b.cc:2: n::Plan is the name of a type of a/a.h:3, too: give one of them another");
}

TEST(NamesTest, NamespacesKeepTypesApart) {
  const std::string plan = "struct Plan {\n};\n";
  EXPECT_EQ(Check("namespace n {\n" + plan, "namespace m {\n" + plan).size(), 0u);
  EXPECT_EQ(Check("namespace n {\n" + plan, "namespace n {\nnamespace {\n" + plan).size(), 0u);
  EXPECT_EQ(Check("namespace n::m {\n" + plan, "namespace n {\nnamespace m {\n" + plan).size(), 1u);
  EXPECT_EQ(
      Check("namespace n {\n}  // namespace n\nnamespace m {\n" + plan, "namespace n {\n" + plan)
          .size(),
      0u);
}

TEST(NamesTest, AProgramsOwnTypesBehindAnAliasAreItsOwn) {
  const std::string program = "namespace n = m;\nstruct Flags {\n};\n";
  EXPECT_EQ(Check(program, program).size(), 0u);
}

TEST(NamesTest, DeclarationsAndSpecializationsAreNoDefinitions) {
  EXPECT_EQ(Check("namespace n {\nstruct Plan {\n};\n", "namespace n {\nstruct Plan;\n").size(),
            0u);
  EXPECT_EQ(
      Check("namespace n {\nstruct Of {\n};\n", "namespace n {\nstruct Of<int> {\n};\n").size(),
      0u);
  EXPECT_EQ(Check("namespace n {\nclass [[nodiscard]] Of {\n};\n",
                  "namespace n {\nenum class Of : int {\n};\n")
                .size(),
            1u);
}

}  // namespace
}  // namespace millrace::layers
