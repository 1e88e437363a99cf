// SPDX-License-Identifier: Apache-2.0
#include "base/text/markup.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Markup, CharactersWithAMeaningBecomeEntities) {
  EXPECT_EQ(MarkupText("<a href=\"x\" b='y'>&"), "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;");
}

TEST(Markup, BytesThatXmlRefusesAreReplacedAndLinesStay) {
  EXPECT_EQ(MarkupText(std::string_view("a\0b\x1b\x7f\t\n\r\xc3\xa4", 10)), "a?b??\t\n\r\xc3\xa4");
}

}  // namespace
}  // namespace millrace
