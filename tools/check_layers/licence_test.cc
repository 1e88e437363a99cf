// SPDX-License-Identifier: Apache-2.0
#include "tools/check_layers/licence.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace::layers {
namespace {

TEST(LicenceTest, ASourceBeginsWithItsLicence) {
  const std::string licence(kLicenceLine);
  const auto found = CheckLicence(
      {{"a/a.h", licence + "// Words.\n"}, {"a/b.cc", "// Words.\n" + licence}, {"a/c.cc", ""}});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(ToString(found[0]),
            "a/b.cc:1: a/b.cc does not begin with its licence: put "
            "// SPDX-License-Identifier: Apache-2.0 into its first line");
  EXPECT_EQ(found[1].path, "a/c.cc");
}

}  // namespace
}  // namespace millrace::layers
