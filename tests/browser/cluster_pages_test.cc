// SPDX-License-Identifier: Apache-2.0
// Pages of a real server with a session, as people see them: the graph, the places of its nodes,
// and the metrics.
//
// Without a browser the test is skipped; with MILLRACE_REQUIRE_BROWSER in the environment that is a
// failure. Pictures are left in TEST_UNDECLARED_OUTPUTS_DIR.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "tests/browser/browser.h"
#include "tests/cluster/free_ports.h"
#include "tests/cluster/process.h"

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ClusterPagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    browser_ = Browser::StartOrSkip(StrCat(::testing::TempDir(), "/browser"));
    if (IsSkipped()) return;
    ASSERT_NE(browser_, nullptr);
    const std::vector<int> ports = FreePorts(3);
    const std::string spec = StrCat("ps|127.0.0.1:", ports[0], ",worker|127.0.0.1:", ports[1]);
    for (const char* job : {"ps", "worker"}) {
      std::vector<std::string> arguments = {"server", "--cluster_spec=" + spec,
                                            StrCat("--job_name=", job)};
      const bool has_pages = std::string_view(job) == "worker";
      if (has_pages) arguments.push_back(StrCat("--http=127.0.0.1:", ports[2]));
      servers_.push_back(std::make_unique<Process>("tools/millrace", arguments));
      ASSERT_TRUE(servers_.back()->WaitForOutput(has_pages ? "pages at" : "listening on",
                                                 std::chrono::seconds(60)))
          << servers_.back()->output();
    }
    origin_ = StrCat("http://127.0.0.1:", ports[2]);
    target_ = StrCat("grpc://127.0.0.1:", ports[1]);
  }

  std::string Text(const std::string& expression) { return browser_->Text(expression); }

  std::vector<std::unique_ptr<Process>> servers_;
  std::string origin_, target_;
  std::unique_ptr<Browser> browser_;
};

TEST_F(ClusterPagesTest, GraphsPlacesAndMetricsFitEveryScreen) {
  Graph graph;
  const Scope root = graph.root();
  const Output x = Placeholder(root, kFloat, PartialShape({}));
  const Output far = ops::Neg(root.WithDevice("/job:ps"), x);
  const Output sum = ops::Neg(root.WithDevice("/job:worker"), far);
  SessionOptions options;
  options.target = target_;
  auto session = Session::Create(graph, options);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto value = session->Run({{x, Tensor::Scalar(1.0f)}}, {sum});
  ASSERT_TRUE(value.ok()) << value.status();
  browser_->Open(origin_ + "/graphz");
  const std::string place =
      Text("document.querySelector('a[href*=\"session=\"]')?.getAttribute('href') ?? ''");
  ASSERT_THAT(place, HasSubstr("/placementz?session="));
  const char* const pictures = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  const std::vector<std::pair<std::string, std::string>> pages = {
      {"graphz", "/graphz"}, {"placementz", place}, {"metrics", "/metrics"}};
  for (const auto& [name, path] : pages) {
    std::string paper[2];
    for (const Look& look : kLooks) {
      browser_->Emulate(look);
      browser_->Open(origin_ + path);
      EXPECT_EQ(browser_->Evaluate("document.documentElement.scrollWidth <= innerWidth"), true)
          << path << " is wider than the screen of " << look.name;
      paper[look.dark ? 1 : 0] = Text("getComputedStyle(document.body).backgroundColor");
      if (pictures != nullptr) {
        browser_->Screenshot(StrCat(pictures, "/", name, "_", look.name, ".png"));
      }
    }
    // Plain text has the browser's own colours.
    if (name == "metrics") continue;
    EXPECT_NE(paper[0], paper[1]) << path << " looks the same in the dark";
  }
  browser_->Open(origin_ + "/metrics");
  EXPECT_THAT(Text("document.body.textContent"), HasSubstr("millrace_steps_total 1"));
  browser_->Open(origin_ + place);
  EXPECT_THAT(Text("document.documentElement.outerHTML"), HasSubstr("/job:ps/replica:0/task:0"));
  EXPECT_THAT(browser_->errors(), IsEmpty());
  EXPECT_THAT(browser_->requests(), IsEmpty());
}

}  // namespace
}  // namespace millrace::testing
