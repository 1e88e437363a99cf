// `millrace page`, `top`, `trace`, `profile` and `doctor` against a server of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "distributed_runtime/service/observe_service.h"
#include "millrace/core.h"
#include "tests/cluster/free_ports.h"
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

TEST_F(ObserveCommandsTest, TheLogIsOneJsonObjectALineIfAskedFor) {
  Process server("tools/millrace",
                 {"server", "--cluster_spec=worker|127.0.0.1:0", "--job_name=worker",
                  "--http=127.0.0.1:0", "--log_format=json"});
  ASSERT_TRUE(server.WaitForOutput("pages at http://", std::chrono::seconds(60)))
      << server.output();
  server.Signal(SIGTERM);
  EXPECT_EQ(server.WaitForEnd(std::chrono::seconds(60)), 0) << server.output();
  int lines = 0;
  for (const std::string_view text : StrSplit(StripWhitespace(server.output()), '\n')) {
    const auto line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(line.is_object()) << text;
    for (const char* key : {"time", "severity", "file", "line", "task", "message"}) {
      EXPECT_TRUE(line.contains(key)) << key << " of " << text;
    }
    ++lines;
  }
  EXPECT_GE(lines, 2);
  EXPECT_THAT(Millrace("devices --log_format=xml", 2), HasSubstr("log_format"));
}

TEST_F(ObserveCommandsTest, ATraceOfAClusterThatRunsNothingSaysSo) {
  for (const char* command : {"trace", "profile", "doctor"}) {
    EXPECT_THAT(Millrace(StrCat(command, " ", target_, " --seconds 0.2"), 1),
                HasSubstr("no step ended within 200 ms"));
  }
}

// Two tasks, each the master of a session whose steps run on both.
class BusyClusterTest : public ::testing::Test {
 protected:
  struct Master {
    std::unique_ptr<Process> server;
    std::string address;
    Graph graph;
    std::optional<Session> session;
    Output x, sum;
  };

  void SetUp() override {
    const std::vector<int> ports = FreePorts(2);
    const std::string spec = StrCat("worker|127.0.0.1:", ports[0], ";127.0.0.1:", ports[1]);
    for (int i = 0; i < 2; ++i) {
      masters_[i].address = StrCat("127.0.0.1:", ports[i]);
      masters_[i].server = std::make_unique<Process>(
          "tools/millrace",
          std::vector<std::string>{"server", "--cluster_spec=" + spec, "--job_name=worker",
                                   StrCat("--task_index=", i)});
    }
    for (Master& master : masters_) {
      ASSERT_TRUE(master.server->WaitForOutput("listening on ", std::chrono::seconds(60)))
          << master.server->output();
      const Scope root = master.graph.root();
      master.x = Placeholder(root, kFloat, PartialShape({}));
      const Output far = ops::Neg(root.WithDevice("/job:worker/task:0"), master.x);
      master.sum = ops::Neg(root.WithDevice("/job:worker/task:1"), far);
      SessionOptions options;
      options.target = "grpc://" + master.address;
      auto session = Session::Create(master.graph, options);
      ASSERT_TRUE(session.ok()) << session.status();
      master.session.emplace(*std::move(session));
      RunOneStep(&master);
    }
  }
  void TearDown() override {
    stop_ = true;
    for (std::thread& client : clients_) client.join();
  }

  static void RunOneStep(Master* master) {
    const auto value = master->session->Run({{master->x, Tensor::Scalar(1.0f)}}, {master->sum});
    EXPECT_TRUE(value.ok()) << value.status();
  }
  // Until the end of the test.
  void KeepBusy(int index, std::chrono::milliseconds pause) {
    clients_.emplace_back([this, index, pause] {
      while (!stop_) {
        RunOneStep(&masters_[index]);
        std::this_thread::sleep_for(pause);
      }
    });
  }
  // A command against the first task; its output.
  std::string Ask(const std::string& command) const {
    Process asked("tools/millrace", {command, "grpc://" + masters_[0].address, "--seconds=100"});
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(asked.WaitForEnd(std::chrono::seconds(90)), 0) << asked.output();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(50))
        << "it waited for a master that runs nothing";
    return asked.output();
  }

  Master masters_[2];
  std::atomic<bool> stop_{false};
  std::vector<std::thread> clients_;
};

TEST_F(BusyClusterTest, TheGraphOfASessionIsAPageWithReasons) {
  const auto page = [this](const std::string& path) {
    Process asked("tools/millrace", {"page", "grpc://" + masters_[0].address, path});
    EXPECT_EQ(asked.WaitForEnd(std::chrono::seconds(60)), 0) << asked.output();
    return asked.output();
  };
  const std::string list = page("/graphz");
  EXPECT_THAT(list, HasSubstr("on /job:worker/replica:0/task:0/device:CPU:0"));
  EXPECT_EQ(list, page("/placementz")) << "without a session both list them";
  const std::string link = "/placementz?session=";
  const std::size_t begin = list.find(link);
  ASSERT_NE(begin, std::string::npos) << list;
  const std::string path = list.substr(begin, list.find('"', begin) - begin);
  const std::string shown = page(path);
  EXPECT_THAT(shown, HasSubstr("/job:worker/replica:0/task:1/device:CPU:0"));
  EXPECT_THAT(shown, HasSubstr("Placeholder"));
  Process wrong("tools/millrace", {"page", "grpc://" + masters_[0].address, link + "nobody"});
  EXPECT_EQ(wrong.WaitForEnd(std::chrono::seconds(60)), 1) << wrong.output();
}

TEST_F(BusyClusterTest, NobodyWaitsForAMasterThatIsIdle) {
  KeepBusy(1, std::chrono::milliseconds(1));
  EXPECT_THAT(Ask("profile"), HasSubstr("Neg"));
  const std::string text = Ask("doctor");
  EXPECT_THAT(text, HasSubstr("/job:worker/replica:0/task:1: compute"));
  EXPECT_THAT(text, ::testing::ContainsRegex("straggler: /job:worker/replica:0/task:[01], last in "
                                             "[0-9]+ of 5 steps, .* in all, [0-9]+\\.[0-9] % of"));
}

TEST_F(BusyClusterTest, TheErrorOfOneMasterLeavesTheOthersSteps) {
  KeepBusy(0, std::chrono::milliseconds(1));
  KeepBusy(1, std::chrono::milliseconds(100));
  // Somebody else traces the second one, for longer than the test asks. That it has begun is seen
  // by a short trace, which is refused then; until then, the short ones may be in its way.
  std::atomic<bool> traced{false};
  std::thread other([&] {
    while (!stop_ && !traced) {
      traced = TraceSteps(masters_[1].address, 1000, std::chrono::seconds(20)).ok();
    }
  });
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  } while (TraceSteps(masters_[1].address, 1, std::chrono::milliseconds(10)).ok() &&
           std::chrono::steady_clock::now() < limit);
  const std::string text = Ask("profile");
  EXPECT_THAT(text, HasSubstr("Neg"));
  EXPECT_THAT(text, HasSubstr(StrCat("without the steps of ", masters_[1].address)));
  EXPECT_THAT(text, HasSubstr("being traced for somebody else"));
  other.join();
  EXPECT_TRUE(traced);
}

}  // namespace
}  // namespace millrace::testing
