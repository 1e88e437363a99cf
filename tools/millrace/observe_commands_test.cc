// `millrace page`, `top`, `trace`, `profile` and `doctor` against a server of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/strings.h"
#include "tests/cluster/process.h"

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;

class ObserveCommandsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = std::make_unique<Process>(
        "tools/millrace", std::vector<std::string>{"server", "--cluster_spec=worker|127.0.0.1:0",
                                                   "--job_name=worker", "--http=127.0.0.1:0"});
    ASSERT_TRUE(server_->WaitForOutput("pages at http://", std::chrono::seconds(60)))
        << server_->output();
    const std::string& said = server_->output();
    const std::size_t at = said.find("listening on ") + 13;
    target_ = "grpc://" + said.substr(at, said.find('\n', at) - at);
  }

  std::string Millrace(const std::string& arguments, int expected = 0) {
    std::FILE* const pipe = popen(StrCat("tools/millrace ", arguments, " 2>&1").c_str(), "r");
    std::string text;
    char buffer[4096];
    for (std::size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
      text.append(buffer, n);
    }
    const int status = pclose(pipe);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == expected) << arguments << ": " << text;
    return text;
  }

  std::unique_ptr<Process> server_;
  std::string target_;
};

TEST_F(ObserveCommandsTest, APageIsPrinted) {
  EXPECT_THAT(Millrace(StrCat("page ", target_, " /metrics")), HasSubstr("millrace_steps_total 0"));
  EXPECT_THAT(Millrace(StrCat("page ", target_)), HasSubstr("/job:worker/replica:0/task:0"));
  EXPECT_THAT(Millrace(StrCat("page ", target_, " /graphz")), HasSubstr("No session is open here"));
  EXPECT_THAT(Millrace(StrCat("page ", target_, " /nowhere"), 1),
              HasSubstr("has no page /nowhere"));
  EXPECT_THAT(Millrace("page 127.0.0.1:1", 2), HasSubstr("is not of the form grpc://host:port"));
}

TEST_F(ObserveCommandsTest, WhatCannotBeWrittenIsNotDone) {
  const auto to_full_disk = [](const std::string& arguments) {
    return WEXITSTATUS(
        std::system(StrCat("tools/millrace ", arguments, " >/dev/full 2>/dev/null").c_str()));
  };
  EXPECT_EQ(to_full_disk(StrCat("page ", target_, " /metrics")), 1);
  EXPECT_EQ(to_full_disk(StrCat("why-waiting ", target_)), 1);
  EXPECT_EQ(to_full_disk("--help"), 1);
  EXPECT_EQ(to_full_disk("page nowhere"), 2) << "its own mistake comes first";
}

TEST_F(ObserveCommandsTest, WhyWaitingAsksAddressesOnly) {
  EXPECT_THAT(Millrace(StrCat("why-waiting ", target_)), HasSubstr("no step waits"));
  for (const char* bad : {"garbage", "grpc://", "http://127.0.0.1:80", "127.0.0.1:999999"}) {
    EXPECT_THAT(Millrace(StrCat("why-waiting ", bad), 2), HasSubstr("address")) << bad;
  }
}

TEST_F(ObserveCommandsTest, TopHasALineForEachTask) {
  const std::string text = Millrace(StrCat("top ", target_, " --once --interval 0.1"));
  EXPECT_THAT(text, HasSubstr("steps/s"));
  EXPECT_THAT(text, HasSubstr("/job:worker/replica:0/task:0"));
  const std::string lines = Millrace(StrCat("top ", target_, " --json --count 2 --interval 0.1"));
  int count = 0;
  for (const std::string_view line : StrSplit(StripWhitespace(lines), '\n')) {
    const auto look = nlohmann::json::parse(line);
    ASSERT_EQ(look["tasks"].size(), 1u);
    EXPECT_EQ(look["tasks"][0]["steps_per_second"], 0);
    EXPECT_GT(look["tasks"][0]["resident_bytes"], 1'000'000);
    ++count;
  }
  EXPECT_EQ(count, 2);
}

TEST_F(ObserveCommandsTest, ATraceOfAClusterThatRunsNothingSaysSo) {
  for (const char* command : {"trace", "profile", "doctor"}) {
    EXPECT_THAT(Millrace(StrCat(command, " ", target_, " --seconds 0.2"), 1),
                HasSubstr("no step ended within 200 ms"));
  }
}

}  // namespace
}  // namespace millrace::testing
