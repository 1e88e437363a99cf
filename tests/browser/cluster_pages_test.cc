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
#include <thread>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "tests/browser/browser.h"
#include "tests/cluster/free_ports.h"
#include "tests/cluster/process.h"

namespace millrace::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

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

  // Of a session, which stays open, with a node in either task.
  void RunOneStep() {
    const Scope root = graph_.root();
    const Output x = Placeholder(root, kFloat, PartialShape({}));
    const Output far = ops::Neg(root.WithDevice("/job:ps").WithOpName("far"), x);
    const Output near = ops::Neg(root.WithDevice("/job:worker").WithOpName("near"), far);
    SessionOptions options;
    options.target = target_;
    auto session = Session::Create(graph_, options);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = std::make_unique<Session>(*std::move(session));
    const auto value = session_->Run({{x, Tensor::Scalar(1.0f)}}, {near});
    ASSERT_TRUE(value.ok()) << value.status();
  }

  // Waits, for a page that is on its way or at work, until the expression is true.
  bool Becomes(const std::string& expression) {
    for (int i = 0; i < 2400; ++i) {
      if (Text(expression) == "true") return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    return false;
  }

  std::vector<std::unique_ptr<Process>> servers_;
  Graph graph_;
  std::unique_ptr<Session> session_;
  std::string origin_, target_;
  std::unique_ptr<Browser> browser_;
};

TEST_F(ClusterPagesTest, GraphsPlacesAndMetricsFitEveryScreen) {
  RunOneStep();
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
      if (name == "placementz") {
        EXPECT_EQ(browser_->Evaluate(
                      "(() => { const r = document.querySelector('#view').getBoundingClientRect(); "
                      "return r.width > innerWidth / 2 && r.height > innerHeight / 4; })()"),
                  true)
            << "there is no room for the drawing on the screen of " << look.name;
      }
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

// From the list of graphs to a node and on to the one that it reads, as a hand would go.
TEST_F(ClusterPagesTest, AClickOnANodeSaysWhereItIsAndWhyAndLeadsToItsInputs) {
  RunOneStep();
  for (const Look& look : {kLooks[0], kLooks[2]}) {
    SCOPED_TRACE(look.name);
    browser_->Emulate(look);
    browser_->Open(origin_ + "/graphz");
    browser_->Click("a[href*='session=']");
    ASSERT_TRUE(Becomes("document.querySelector(`.item[data-name='near']`) !== null"));
    browser_->Click("#fit");
    EXPECT_EQ(Text("String(document.querySelector('#why'))"), "null") << "nothing is chosen yet";

    browser_->Click(".item[data-name='near'] .body");
    EXPECT_EQ(Text("document.querySelector('.item.selected').dataset.name"), "near");
    EXPECT_EQ(Text("document.querySelector('#details .name').textContent"), "near");
    const std::string near = Text("document.querySelector('#details').textContent");
    EXPECT_THAT(near, HasSubstr("Neg"));
    EXPECT_THAT(near, HasSubstr("/job:worker/replica:0/task:0/device:CPU:0"));
    EXPECT_THAT(Text("document.querySelector('#why').textContent"), HasSubstr("/job:worker"));
    EXPECT_THAT(Text("document.querySelector('#attrs').textContent"), HasSubstr("DT_FLOAT"));
    EXPECT_THAT(near, HasSubstr("cut")) << "what it reads comes from the other task";

    // The input is a link.
    Text("document.querySelector('#details td a').scrollIntoView()");
    browser_->Click("#details td a");
    EXPECT_EQ(Text("document.querySelector('.item.selected').dataset.name"), "far");
    EXPECT_THAT(Text("document.querySelector('#why').textContent"), HasSubstr("/job:ps"));

    // Nothing is chosen again.
    browser_->Press("Escape");
    EXPECT_EQ(Text("String(document.querySelector('.item.selected'))"), "null");
  }
  EXPECT_THAT(browser_->errors(), IsEmpty());
  EXPECT_THAT(browser_->requests(), Each(StartsWith(origin_ + "/placementz?session=")))
      << "the click loads that page, which loads nothing";
}

}  // namespace
}  // namespace millrace::testing
