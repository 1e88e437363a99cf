// SPDX-License-Identifier: Apache-2.0
// The pages as people see them: at a desk and on a phone, light and dark.
//
// Without a browser the test is skipped; with MILLRACE_REQUIRE_BROWSER in the environment that is a
// failure. Pictures are left in TEST_UNDECLARED_OUTPUTS_DIR.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/strings.h"
#include "distributed_runtime/pages/pages_test_util.h"
#include "tests/browser/browser.h"

namespace millrace {
namespace {

using testing::Browser;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kLooks;
using testing::Look;

class PagesViewTest : public PagesTest {
 protected:
  void SetUp() override {
    browser_ = Browser::StartOrSkip(StrCat(::testing::TempDir(), "/browser"));
    if (IsSkipped()) return;
    ASSERT_NE(browser_, nullptr);
    PagesTest::SetUp();
  }
  void Open(const std::string& path) {
    browser_->Open(StrCat("http://127.0.0.1:", http_->port(), path));
  }
  std::string Text(const std::string& expression) { return browser_->Text(expression); }

  std::unique_ptr<Browser> browser_;
};

TEST_F(PagesViewTest, PagesFitEveryScreenFollowTheReadersColoursAndNeedNothingElse) {
  RunSteps(30);
  EXPECT_FALSE(session_->Run({}, {}, {"fail"}).ok());
  const char* const pictures = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  for (const char* path : {"/statusz", "/stepz", "/rpcz", "/memz"}) {
    for (const Look& look : kLooks) {
      browser_->Emulate(look);
      Open(path);
      EXPECT_EQ(browser_->Evaluate("document.documentElement.scrollWidth <= innerWidth"), true)
          << path << " is wider than the screen of " << look.name;
      const std::string paper = Text("getComputedStyle(document.body).backgroundColor");
      EXPECT_EQ(paper, look.dark ? "rgb(20, 23, 28)" : "rgb(255, 255, 255)") << path;
      EXPECT_THAT(Text("document.querySelector('h1').textContent"), ::testing::Not(IsEmpty()));
      if (pictures == nullptr) continue;
      browser_->Screenshot(StrCat(pictures, path, "_", look.name, ".png"));
    }
  }
  EXPECT_THAT(browser_->errors(), IsEmpty());
  EXPECT_THAT(browser_->requests(), IsEmpty());
}

TEST_F(PagesViewTest, OnePageLeadsToTheOthers) {
  RunSteps(1);
  Open("/statusz");
  browser_->Click("nav a[href='/stepz']");
  // The click loads another page; it is there when it says so.
  for (int i = 0; i < 2400 && Text("document.querySelector('h1')?.textContent ?? ''") != "Steps";
       ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  EXPECT_EQ(Text("document.querySelector('h1').textContent"), "Steps");
  EXPECT_THAT(Text("document.body.textContent"), HasSubstr("Steps that have ended: 1"));
}

}  // namespace
}  // namespace millrace
