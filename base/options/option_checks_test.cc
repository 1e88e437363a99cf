// SPDX-License-Identifier: Apache-2.0
#include "base/options/option_checks.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

std::string Text(OptionChecks& checks) { return std::string(checks.status().message()); }

TEST(OptionChecksTest, WhatHoldsIsGood) {
  OptionChecks checks("x");
  checks.Finite("a", -1)
      .AtLeast("b", 0, 0)
      .Above("c", 1, 0)
      .AtMost("d", 0, 0)
      .Within("e", 1, 0, 1)
      .Below("f", 0, 0, 1)
      .Patterns("g", {"a.*", ""});
  EXPECT_TRUE(checks.status().ok()) << checks.status();
}

TEST(OptionChecksTest, AnErrorNamesWhoseOptionItIsAndItsValue) {
  OptionChecks below("optimizer 'adam'"), above("x"), most("x"), within("x"), least("x");
  EXPECT_EQ(Text(below.Below("beta_1", 1, 0, 1)),
            "optimizer 'adam': beta_1 must be at least 0 and below 1, not 1");
  EXPECT_EQ(Text(above.Above("a", 0, 0)), "x: a must be above 0, not 0");
  EXPECT_EQ(Text(most.AtMost("a", 2, 1)), "x: a must be at most 1, not 2");
  EXPECT_EQ(Text(within.Within("a", -0.5, 0, 1)), "x: a must be from 0 to 1, not -0.5");
  EXPECT_EQ(Text(least.AtLeast("a", -1, 0)), "x: a must be at least 0, not -1");
  EXPECT_EQ(least.status().code(), StatusCode::kInvalidArgument);
}

TEST(OptionChecksTest, NoNumberThatIsNotFiniteHolds) {
  for (const double value : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    OptionChecks finite("x"), least("x");
    EXPECT_NE(Text(finite.Finite("a", value)).find("a must be a finite number, not "),
              std::string::npos);
    EXPECT_FALSE(least.AtLeast("a", value, 0).status().ok());
  }
}

TEST(OptionChecksTest, WithoutAValueEverythingHolds) {
  OptionChecks checks("x");
  checks.AtLeast("a", std::nullopt, 0).Finite("b", std::nullopt);
  EXPECT_TRUE(checks.status().ok());
}

TEST(OptionChecksTest, TheFirstErrorStays) {
  OptionChecks checks("x");
  checks.AtLeast("a", -1, 0).AtLeast("b", -1, 0).Patterns("c", {"("});
  EXPECT_EQ(Text(checks), "x: a must be at least 0, not -1");
}

TEST(OptionChecksTest, APatternThatCannotBeReadIsNamed) {
  OptionChecks checks("x");
  checks.Patterns("names", {"good", "("});
  EXPECT_NE(Text(checks).find("'(' in names is no regular expression"), std::string::npos);
}

}  // namespace
}  // namespace millrace
