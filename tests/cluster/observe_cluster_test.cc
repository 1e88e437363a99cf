// SPDX-License-Identifier: Apache-2.0
// `millrace top`, `trace` and `doctor` of clusters of which one task is slow, stands still, or
// dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "millrace/core.h"
#include "tests/cluster/free_ports.h"
#include "tests/cluster/process.h"

namespace millrace::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using std::chrono::seconds;

// Two tasks, "/job:a/task:0" and "/job:b/task:0" by their jobs, with a session at the second one.
class ObservedCluster {
 public:
  ObservedCluster(std::string first_job, std::string second_job)
      : jobs_{std::move(first_job), std::move(second_job)} {
    const std::vector<int> ports = FreePorts(2);
    for (int i = 0; i < 2; ++i) addresses_[i] = StrCat("127.0.0.1:", ports[i]);
    for (int i = 0; i < 2; ++i) Start(i);
  }
  ~ObservedCluster() {
    stop_ = true;
    if (client_.joinable()) client_.join();
  }
  ObservedCluster(const ObservedCluster&) = delete;
  ObservedCluster& operator=(const ObservedCluster&) = delete;

  void Start(int i) {
    servers_[i] = std::make_unique<Process>(
        "tools/millrace",
        std::vector<std::string>{"server",
                                 StrCat("--cluster_spec=", jobs_[0], "|", addresses_[0], ",",
                                        jobs_[1], "|", addresses_[1]),
                                 "--job_name=" + jobs_[i]});
  }
  [[nodiscard]] bool WaitUntilTheyListen() {
    bool all = true;
    for (const auto& server : servers_) {
      all = server->WaitForOutput("listening on ", seconds(60)) && all;
    }
    return all;
  }

  Process& server(int i) { return *servers_[i]; }
  const std::string& address(int i) const { return addresses_[i]; }
  std::string target(int i) const { return "grpc://" + addresses_[i]; }
  std::string device(int i) const { return StrCat("/job:", jobs_[i], "/task:0"); }
  // As tasks call themselves.
  std::string task(int i) const { return StrCat("/job:", jobs_[i], "/replica:0/task:0"); }
  Graph& graph() { return graph_; }

  [[nodiscard]] bool Open() {
    SessionOptions options;
    options.target = target(1);
    auto session = Session::Create(graph_, options);
    EXPECT_TRUE(session.ok()) << session.status();
    if (session.ok()) session_.emplace(*std::move(session));
    return session_.has_value();
  }
  [[nodiscard]] bool RunOnce(const Output& fetch) {
    const auto value = session_->Run({}, {fetch});
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok();
  }
  // Until the end of the test, or an error.
  void KeepRunning(const Output& fetch) {
    client_ = std::thread([this, fetch] {
      while (!stop_ && RunOnce(fetch)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }

 private:
  const std::string jobs_[2];
  std::string addresses_[2];
  std::unique_ptr<Process> servers_[2];
  Graph graph_;
  std::optional<Session> session_;
  std::atomic<bool> stop_{false};
  std::thread client_;
};

std::string Ask(const std::vector<std::string>& arguments, int expected = 0) {
  Process asked("tools/millrace", arguments);
  EXPECT_EQ(asked.WaitForEnd(seconds(120)), expected) << asked.output();
  return asked.output();
}

// Some GFlop whose operands nobody knows before, beside which everything else takes no time.
Output Heavy(const Scope& scope) {
  const Output noise = ops::RandomUniform(scope, Tensor::FromValues<int32_t>({1024, 1024}), kFloat);
  Output product = noise;
  for (int i = 0; i < 4; ++i) product = ops::MatMul(scope, product, noise);
  return ops::Sum(scope, product, Tensor::FromValues<int32_t>({0, 1}));
}

// A ps gives a value, a worker works on it, and the ps takes the result: it is always the last one
// to answer.
TEST(ObserveClusterTest, TheStragglerIsTheTaskWhoseKernelsAreSlow) {
  for (const int slow : {0, 1}) {
    ObservedCluster cluster("ps", "worker");
    ASSERT_TRUE(cluster.WaitUntilTheyListen());
    const Scope root = cluster.graph().root();
    const Scope ps = root.WithDevice(cluster.device(0)),
                worker = root.WithDevice(cluster.device(1));
    const Output given =
        ops::Neg(ps, ops::RandomUniform(ps, Tensor::FromValues<int32_t>({}), kFloat));
    const Output value = slow == 0 ? ops::Add(ps, given, Heavy(ps)) : given;
    const Output got = ops::Neg(worker, value);
    const Output result = slow == 1 ? ops::Add(worker, got, Heavy(worker)) : got;
    const Output taken = ops::Neg(ps, result);
    ASSERT_TRUE(root.status().ok()) << root.status();
    ASSERT_TRUE(cluster.Open());
    ASSERT_TRUE(cluster.RunOnce(taken));
    cluster.KeepRunning(taken);
    const std::string doctor =
        Ask({"doctor", cluster.target(1), "--steps=3", "--seconds=100", "--timeout=60"});
    EXPECT_THAT(doctor, ContainsRegex(StrCat("straggler: ", cluster.task(slow),
                                             ", in [0-9]+ of 3 steps, worked .* longer than")));
    EXPECT_THAT(doctor, ::testing::Not(HasSubstr("straggler: " + cluster.task(1 - slow))));
    const std::string profile =
        Ask({"profile", cluster.target(1), "--steps=3", "--seconds=100", "--timeout=60"});
    const std::vector<std::string_view> lines = StrSplit(profile, '\n');
    ASSERT_GE(lines.size(), 2u) << profile;
    EXPECT_THAT(std::string(lines[1]), HasSubstr("MatMul")) << profile;
    EXPECT_THAT(std::string(lines[1]), HasSubstr(cluster.task(slow))) << profile;
  }
}

// The other task's steps go on without it.
TEST(ObserveClusterTest, ATaskThatStandsStillIsNamedAndTheOthersAreShown) {
  ObservedCluster cluster("still", "worker");
  ASSERT_TRUE(cluster.WaitUntilTheyListen());
  const Scope root = cluster.graph().root();
  const Scope worker = root.WithDevice(cluster.device(1));
  const Output value =
      ops::Neg(worker, ops::RandomUniform(worker, Tensor::FromValues<int32_t>({4}), kFloat));
  ASSERT_TRUE(root.status().ok()) << root.status();
  ASSERT_TRUE(cluster.Open());
  ASSERT_TRUE(cluster.RunOnce(value));
  cluster.KeepRunning(value);
  cluster.server(0).Freeze();
  const std::string silence =
      StrCat(cluster.task(0), " at ", cluster.address(0), ": no answer within 5 s");

  const std::string top = Ask({"top", cluster.target(1), "--once", "--json", "--timeout=5"});
  const Json look = Json::parse(top, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(look.is_object()) << top;
  ASSERT_EQ(look["tasks"].size(), 2u) << top;
  EXPECT_GT(look["tasks"][0]["steps_per_second"], 0) << top;
  EXPECT_EQ(look["tasks"][1]["task"], cluster.task(0)) << top;
  EXPECT_EQ(look["tasks"][1]["address"], cluster.address(0)) << top;
  EXPECT_EQ(look["tasks"][1]["error"], "no answer within 5 s") << top;

  const std::string doctor = Ask({"doctor", cluster.target(1), "--timeout=5"});
  EXPECT_THAT(doctor, HasSubstr(cluster.task(1) + ": compute"));
  EXPECT_THAT(doctor, HasSubstr("\n" + silence));

  const std::string file = ::testing::TempDir() + "/observe_cluster_trace.json";
  EXPECT_THAT(Ask({"trace", cluster.target(1), "--timeout=5", "-o", file}),
              HasSubstr("without " + silence));
  EXPECT_TRUE(Json::accept(std::ifstream(file)));
  // Of the one that stands still nothing can be had.
  EXPECT_THAT(Ask({"doctor", cluster.target(0), "--timeout=5"}, 1),
              HasSubstr(cluster.address(0) + ": no answer within 5 s"));
  EXPECT_THAT(Ask({"page", cluster.target(0), "--timeout=5"}, 1),
              HasSubstr("no answer within 5 s of " + cluster.address(0)));
}

// The last look that is whole; null if there is none yet.
Json LastLook(const std::string& output) {
  const std::size_t end = output.rfind('\n');
  if (end == std::string::npos) return {};
  const std::size_t before = end == 0 ? std::string::npos : output.rfind('\n', end - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return Json::parse(output.substr(begin, end - begin), nullptr, /*allow_exceptions=*/false);
}

TEST(ObserveClusterTest, TopGoesOnWhenTheTaskThatItAskedDiesAndIsBack) {
  ObservedCluster cluster("a", "b");
  ASSERT_TRUE(cluster.WaitUntilTheyListen());
  Process top("tools/millrace",
              {"top", cluster.target(0), "--json", "--interval=0.2", "--timeout=30"});
  const auto sees = [&](bool first, bool second) {
    const auto limit = std::chrono::steady_clock::now() + seconds(100);
    while (std::chrono::steady_clock::now() < limit) {
      (void)top.WaitForOutput("what it never says", seconds(1));  // reads on
      const Json look = LastLook(top.output());
      if (!look.is_object() || look["tasks"].size() != 2) continue;
      const Json& tasks = look["tasks"];
      EXPECT_EQ(tasks[0]["task"], cluster.task(0)) << look;
      if (tasks[0].contains("error") != first && tasks[1].contains("error") != second) return true;
    }
    return false;
  };
  ASSERT_TRUE(sees(true, true)) << top.output();
  cluster.server(0).Signal(SIGKILL);
  (void)cluster.server(0).WaitForEnd(seconds(60));
  ASSERT_TRUE(sees(false, true)) << top.output();
  EXPECT_THAT(top.output(), HasSubstr("lost, no answer"));
  cluster.Start(0);
  ASSERT_TRUE(sees(true, true)) << top.output();
  EXPECT_EQ(top.WaitForEnd(seconds(0)), Process::kStillRunning) << "it goes on";
}

}  // namespace
}  // namespace millrace::testing
