// SPDX-License-Identifier: Apache-2.0
// The page that `millrace dump --format html` writes, as a user sees it in a browser.
//
// Without a browser these tests are skipped, each by name; with MILLRACE_REQUIRE_BROWSER in the
// environment that is a failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/strings.h"
#include "tests/browser/browser.h"

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kLayers = 500;  // of 20 nodes each

std::string Node(const std::string& name, const std::string& op, const std::string& device,
                 const std::string& rest) {
  return StrCat("node { name: '", name, "' op: '", op, "' device: '", device, "' ", rest,
                op == "VariableV2" || op == "Placeholder"
                    ? " attr { key: 'dtype' value { type: DT_FLOAT } }"
                    : " attr { key: 'T' value { type: DT_FLOAT } }",
                " }\n");
}

// A chain of layers, each with a variable on a ps and work on both CPUs of the worker.
std::string LargeGraph() {
  const std::string shape =
      "attr { key: 'shape' value { shape { dim { size: 64 } dim { size: 64 } } } }";
  std::string text = Node("x", "Placeholder", "/job:worker", shape);
  std::string previous = "x";
  for (int i = 0; i < kLayers; ++i) {
    const std::string layer = StrCat("net/block_", i / 10, "/layer_", i % 10);
    const std::string ps = StrCat("/job:ps/task:", i % 2);
    text += Node(layer + "/w", "VariableV2", ps, shape);
    text += Node(layer + "/w/read", "Identity", "",
                 StrCat("input: '", layer, "/w' attr { key: '_class' value { list { s: 'loc:@",
                        layer, "/w' } } }"));
    text += Node(layer + "/MatMul", "MatMul", "/job:worker",
                 StrCat("input: '", previous, "' input: '", layer, "/w/read'"));
    previous = layer + "/MatMul";
    for (int k = 0; k < 17; ++k) {
      const std::string name = StrCat(layer, "/work/step_", k);
      text += Node(name, "Neg", StrCat("/job:worker/device:CPU:", k % 2),
                   StrCat("input: '", previous, "'"));
      previous = name;
    }
  }
  return text + "versions { producer: 1000 }\n";
}

class HtmlViewTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = StrCat(std::getenv("TEST_TMPDIR"), "/",
                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
    browser_ = Browser::StartOrSkip(dir_);
    if (IsSkipped()) return;
    ASSERT_NE(browser_, nullptr);
    std::ofstream(dir_ + "/graph.pbtxt") << LargeGraph();
    Millrace("dump --format html -o " + dir_ + "/graph.html");
    browser_->Open("file://" + dir_ + "/graph.html");
  }

  void TearDown() override {
    if (browser_ == nullptr) return;
    EXPECT_THAT(browser_->errors(), IsEmpty());
    EXPECT_THAT(browser_->requests(), IsEmpty());
  }

  std::string Millrace(const std::string& arguments) {
    std::FILE* const pipe = popen(StrCat("env -u TF_CONFIG tools/millrace ", arguments, " ", dir_,
                                         "/graph.pbtxt --cluster ps:2,worker:1 --cpus 2 2>&1")
                                      .c_str(),
                                  "r");
    std::string text;
    char buffer[4096];
    for (std::size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
      text.append(buffer, n);
    }
    const int status = pclose(pipe);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text;
    return text;
  }

  int Count(const std::string& selector) {
    return browser_->Evaluate(StrCat("document.querySelectorAll(`", selector, "`).length"))
        .get<int>();
  }
  std::string TextOf(const std::string& selector) {
    return browser_->Evaluate(StrCat("document.querySelector(`", selector, "`).textContent"))
        .get<std::string>();
  }
  void Search(const std::string& words) {
    browser_->Press("/");
    browser_->Type(words);
    browser_->Press("Enter");
  }

  std::string dir_;
  std::unique_ptr<Browser> browser_;
};

TEST_F(HtmlViewTest, TenThousandNodesAreAFewBoxesAtFirstAndAFileOfLessThanFiveMegabytes) {
  EXPECT_THAT(TextOf("#details"), HasSubstr(StrCat(20 * kLayers + 1, " nodes")));
  EXPECT_LT(std::filesystem::file_size(dir_ + "/graph.html"), 5'000'000u);
  EXPECT_LE(Count(".item"), 50);
}

TEST_F(HtmlViewTest, SearchFindsANodeOpensItsScopesAndShowsIt) {
  const std::string node = "net/block_7/layer_3/w/read";
  EXPECT_EQ(Count(StrCat("[data-name='", node, "']")), 0);
  Search("block_7/ layer_3/w/read identity");
  EXPECT_EQ(Count(StrCat(".item.selected[data-name='", node, "']")), 1);
  EXPECT_EQ(TextOf("#details .name"), node);
  browser_->Click(StrCat("[data-name='", node, "']"));  // it is in sight
  browser_->Press("/");
  browser_->Type("no such node");
  EXPECT_THAT(TextOf("#results"), HasSubstr("no node has all of this"));
}

TEST_F(HtmlViewTest, AClickShowsAttributesAndTheWholeRecordOfThePlacer) {
  Search("net/block_7/layer_3/w/read");
  browser_->Press("Escape");
  EXPECT_EQ(Count("#why"), 0);
  browser_->Click("[data-name='net/block_7/layer_3/w/read']");
  EXPECT_THAT(TextOf("#attrs"), HasSubstr("DT_FLOAT"));
  const std::string shown = TextOf("#why");
  const std::string story = Millrace("why net/block_7/layer_3/w/read");
  EXPECT_THAT(story, HasSubstr("_class loc:@net/block_7/layer_3/w"));
  int lines = 0;
  for (const std::string_view line : StrSplit(story, '\n')) {
    // The first one has the name, which is above.
    if (++lines == 1) continue;
    EXPECT_THAT(shown, HasSubstr(std::string(StripWhitespace(line))));
  }
  EXPECT_GT(lines, 8);
}

TEST_F(HtmlViewTest, ScopesOpenAndCloseAtTheirSign) {
  browser_->Click("#collapse");
  const int closed = Count(".item");
  ASSERT_EQ(Count(".box"), 0);
  browser_->Click(".item.scope[data-name='net'] .sign");
  EXPECT_EQ(Count(".box[data-name='net']"), 1);
  EXPECT_GT(Count(".item"), closed);
  browser_->Click("#fit");
  browser_->Click(".box[data-name='net'] .sign");
  EXPECT_EQ(Count(".box"), 0);
  EXPECT_EQ(Count(".item"), closed);
}

TEST_F(HtmlViewTest, ColoursAreOfDevicesOrOfTasksAndSoAreTheCuts) {
  Search("net/block_7/layer_3/work/step_1 neg");
  const auto fill = [&](const char* name) {
    return browser_->Evaluate(
        StrCat("getComputedStyle(document.querySelector(`[data-name='", name, "'] rect`)).fill"));
  };
  const char* const even = "net/block_7/layer_3/work/step_2";
  const char* const odd = "net/block_7/layer_3/work/step_3";
  EXPECT_NE(fill(even), fill(odd));
  EXPECT_EQ(Count("#legend tr"), 4);
  const int cuts = Count(".edge.cut");
  EXPECT_GT(Count(".bytes"), 0);
  EXPECT_THAT(TextOf(".bytes"), HasSubstr("16 KiB"));
  browser_->Click("#colour label:nth-child(2)");
  EXPECT_EQ(fill(even), fill(odd));
  EXPECT_EQ(Count("#legend tr"), 3);
  EXPECT_LT(Count(".edge.cut"), cuts);
}

}  // namespace
}  // namespace millrace::testing
