// SPDX-License-Identifier: Apache-2.0
#include "tools/check_layers/environment.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace::layers {
namespace {

std::size_t Count(const std::string& path, const std::string& text) {
  return CheckEnvironment({{path, text}}).size();
}

TEST(EnvironmentTest, AVariableThatIsReadWhereItIsNeededIsMet) {
  const auto found = CheckEnvironment(
      {{"worker/a.cc", "int F() {\n  return std::getenv(\"X\") != nullptr;\n}\n"}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(ToString(found[0]),
            "worker/a.cc:2: worker/a.cc asks the environment: read the variable in "
            "base/options/engine_options.cc and hand the option down");
  EXPECT_EQ(Count("runtime/a.cc", "setenv(\"X\", \"1\", 1);\n"), 1u);
  EXPECT_EQ(Count("jit/a.cc", "::unsetenv(\"X\");\nsecure_getenv(\"Y\");\n"), 2u);
}

TEST(EnvironmentTest, TestsWordsAndTheListAreNot) {
  EXPECT_EQ(Count("worker/a_test.cc", "setenv(\"X\", \"1\", 1);\n"), 0u);
  EXPECT_EQ(Count("tests/fault/processes.cc", "std::getenv(\"X\");\n"), 0u);
  EXPECT_EQ(Count("worker/a.cc", "// getenv(\"X\") was here\nint mygetenv(int);\n"), 0u);
  EXPECT_EQ(Count("base/options/engine_options.cc", "std::getenv(\"X\");\n"), 0u);
}

TEST(EnvironmentTest, AnEntryOfTheListThatIsNotNeededGoes) {
  const auto found = CheckEnvironment({{"base/log.cc", "int x;\n"}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].message.find("take it off the list"), std::string::npos);
}

}  // namespace
}  // namespace millrace::layers
