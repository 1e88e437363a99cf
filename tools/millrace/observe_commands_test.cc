// SPDX-License-Identifier: Apache-2.0
// `millrace page`, `top`, `trace`, `profile` and `doctor` against a server of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "distributed_runtime/service/control_service.h"
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
  const std::string text = Millrace(StrCat("top ", target_, " --once --interval 0.1 --timeout 60"));
  EXPECT_THAT(text, HasSubstr("steps/s"));
  EXPECT_THAT(text, HasSubstr("/job:worker/replica:0/task:0"));
  const std::string lines =
      Millrace(StrCat("top ", target_, " --json --count 2 --interval 0.1 --timeout 60"));
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

// Over itself, as long as somebody looks; what goes into a file or a pipe has nothing of that.
TEST_F(ObserveCommandsTest, TopDrawsOverItselfOnATerminal) {
  const std::string clear = "\x1b[H\x1b[2J";
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    execl("tools/millrace", "millrace", "top", target_.c_str(), "--count=3", "--interval=0.1",
          nullptr);
    _exit(127);
  }
  ASSERT_GT(child, 0);
  std::string text;
  // Reading ends with an error once nobody has the other end open.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  pollfd waits{terminal, POLLIN, 0};
  char bytes[4096];
  while (std::chrono::steady_clock::now() < limit && poll(&waits, 1, 1000) >= 0) {
    if (waits.revents == 0) continue;
    const ssize_t n = read(terminal, bytes, sizeof(bytes));
    if (n <= 0) break;
    text.append(bytes, static_cast<std::size_t>(n));
  }
  kill(child, SIGKILL);  // if it has not ended
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  close(terminal);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text;
  int looks = 0;
  for (std::size_t at = 0; (at = text.find(clear, at)) != std::string::npos; ++at) ++looks;
  EXPECT_EQ(looks, 3) << text;
  EXPECT_THAT(text, HasSubstr("/job:worker/replica:0/task:0"));
  EXPECT_THAT(Millrace(StrCat("top ", target_, " --count 2 --interval 0.1")),
              ::testing::Not(HasSubstr("\x1b")));
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

TEST_F(ObserveCommandsTest, AFileThatCannotBeWrittenIsSaidBeforeStepsAreWaitedFor) {
  EXPECT_THAT(Millrace(StrCat("trace ", target_, " --seconds 0.2 -o /nowhere/t.json"), 2),
              HasSubstr("cannot write /nowhere/t.json"));
  // What is there stays as long as there is nothing better.
  const std::string path = ::testing::TempDir() + "/kept_trace.json";
  std::ofstream(path) << "kept";
  (void)Millrace(StrCat("trace ", target_, " --seconds 0.2 --timeout 60 -o ", path), 1);
  std::string kept;
  std::ifstream(path) >> kept;
  EXPECT_EQ(kept, "kept");
  (void)Millrace(StrCat("trace ", target_, " --seconds 0.2 --timeout 60 -o ", path, "2"), 1);
  EXPECT_FALSE(std::ifstream(path + "2").good()) << "made for nothing";
}

TEST_F(ObserveCommandsTest, ALogFormatOrLevelThatThereIsNotIsComplainedOfOnce) {
  ASSERT_EQ(setenv("MILLRACE_LOG_FORMAT", "yaml", 1), 0);
  ASSERT_EQ(setenv("MILLRACE_LOG_LEVEL", "loud", 1), 0);
  const std::string said = Millrace("devices");
  Process server("tools/millrace",
                 {"server", "--cluster_spec=worker|127.0.0.1:0", "--job_name=worker"});
  EXPECT_TRUE(server.WaitForOutput("listening on", std::chrono::seconds(60))) << server.output();
  ASSERT_EQ(unsetenv("MILLRACE_LOG_FORMAT"), 0);
  ASSERT_EQ(unsetenv("MILLRACE_LOG_LEVEL"), 0);
  EXPECT_THAT(server.output(),
              HasSubstr("MILLRACE_LOG_LEVEL=loud is none of debug, info, warning, error"));
  const std::string complaint = "MILLRACE_LOG_FORMAT=yaml is none of text, json";
  for (const std::string& text : {said, server.output()}) {
    const std::size_t at = text.find(complaint);
    ASSERT_NE(at, std::string::npos) << text;
    EXPECT_EQ(text.find(complaint, at + 1), std::string::npos) << text;
  }
  EXPECT_LT(server.output().find(complaint), server.output().find("listening on"));
}

// What a queue, an accumulator, a staging area, a barrier and a staleness bound say of themselves
// is text for people, of which the metrics are the numbers.
class ResourceMetricsTest : public ObserveCommandsTest {
 protected:
  void SetUp() override {
    ObserveCommandsTest::SetUp();
    if (!HasFatalFailure()) AddNodes();
  }

  // One of a step's nodes around the staleness bound.
  static Operation AddTurn(const Scope& scope, const char* op) {
    return scope.WithOpName("turn").AddOp(
        op, {},
        {{"bound", int64_t{4}}, {"shared_name", std::string("gate")}, {"worker", std::string("w")}},
        std::source_location::current());
  }
  static Output AddQueue(const Scope& scope, const char* name) {
    ops::FIFOQueueV2Attrs attrs;
    attrs.capacity = 32;
    attrs.shared_name = name;
    return ops::FIFOQueueV2(scope, {kFloat}, attrs);
  }

  void AddNodes() {
    const Scope root = graph_.root();
    const Output queue = AddQueue(root, "queue");
    for (int i = 0; i < 3; ++i) fill_.push_back(ops::QueueEnqueueV2(root, queue, {1.0f}));
    ops::ConditionalAccumulatorAttrs accumulator;
    accumulator.shared_name = "sum";
    fill_.push_back(ops::AccumulatorApplyGradient(
        root, ops::ConditionalAccumulator(root, kFloat, PartialShape({}), accumulator), int64_t{0},
        1.0f));
    ops::StageAttrs stage;
    stage.shared_name = "stage";
    for (int i = 0; i < 2; ++i) fill_.push_back(ops::Stage(root, {1.0f}, stage));
    ops::BarrierAttrs barrier;
    barrier.shared_name = "barrier";
    fill_.push_back(ops::BarrierInsertMany(root, ops::Barrier(root, {kFloat}, barrier),
                                           Tensor::FromValues<std::string>({"a", "b", "c", "d"}),
                                           {1.0f, 2.0f, 3.0f, 4.0f}, 0));
    ASSERT_TRUE(root.status().ok()) << root.status();
    // A step that has entered and tells so waits before it commits, and another one overtakes it.
    const Output entered = AddQueue(root, "entered"), go = AddQueue(root, "go");
    const Operation enter = AddTurn(root, "_StalenessEnter");
    const Operation tell =
        ops::QueueEnqueueV2(root.WithControlDependencies({enter}), entered, {1.0f});
    const Operation wait =
        ops::QueueDequeueV2(root.WithControlDependencies({tell}), go, {kFloat})[0].op();
    const Operation commit = AddTurn(root.WithControlDependencies({wait}), "_StalenessCommit");
    slow_ = AddTurn(root.WithControlDependencies({commit}), "_StalenessFinish");
    has_entered_ = ops::QueueDequeueV2(root, entered, {kFloat})[0].op();
    let_go_ = ops::QueueEnqueueV2(root, go, {1.0f});
    const Operation enter_too = AddTurn(root, "_StalenessEnter");
    const Operation commit_too =
        AddTurn(root.WithControlDependencies({enter_too}), "_StalenessCommit");
    quick_ = AddTurn(root.WithControlDependencies({commit_too}), "_StalenessFinish");
    ASSERT_TRUE(root.status().ok()) << root.status();
  }

  Graph graph_;
  std::vector<Operation> fill_;
  Operation slow_, has_entered_, let_go_, quick_;
};

TEST_F(ResourceMetricsTest, NumbersAreThoseOfTheResources) {
  SessionOptions options;
  options.target = target_;
  auto session = Session::Create(graph_, options);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto run = [&](std::span<const Operation> targets) {
    const auto ran = session->Run(std::span<const Feed>(), std::span<const Output>(), targets);
    EXPECT_TRUE(ran.ok()) << ran.status();
  };
  run(fill_);
  std::thread slow([&] { run({&slow_, 1}); });
  run({&has_entered_, 1});
  run({&quick_, 1});
  run({&let_go_, 1});
  slow.join();
  const std::string metrics = Millrace(StrCat("page ", target_, " /metrics"));
  const auto sample = [](const char* family, const char* name, int value) {
    return HasSubstr(StrCat(
        "\n", family, "{device=\"/job:worker/replica:0/task:0/device:CPU:0\",name=\"localhost/",
        name, "\"} ", value, "\n"));
  };
  EXPECT_THAT(metrics, sample("millrace_queue_elements", "queue", 3));
  EXPECT_THAT(metrics, sample("millrace_queue_elements", "go", 0));
  EXPECT_THAT(metrics, sample("millrace_accumulator_gradients", "sum", 1));
  EXPECT_THAT(metrics, sample("millrace_staging_tuples", "stage", 2));
  EXPECT_THAT(metrics, sample("millrace_barrier_ready", "barrier", 4));
  EXPECT_THAT(metrics, sample("millrace_staleness_steps", "gate", 1));
  const std::string memory = Millrace(StrCat("page ", target_, " /memz"));
  EXPECT_THAT(memory, ::testing::ContainsRegex("localhost/queue<.*FIFOQueue .*3 elements"));
  EXPECT_THAT(memory, HasSubstr("2 updates, at most 1 old"));
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
      master.x = Placeholder(root, kFloat, PartialShape({4}));
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
    const auto value = master->session->Run(
        {{master->x, Tensor::FromValues({1.0f, 2.0f, 3.0f, 4.0f})}}, {master->sum});
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
    Process asked("tools/millrace",
                  {command, "grpc://" + masters_[0].address, "--seconds=100", "--timeout=60"});
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(asked.WaitForEnd(std::chrono::seconds(90)), 0) << asked.output();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(50))
        << "it waited for a master that runs nothing";
    return asked.output();
  }

  static bool WaitUntilAQueueIsWaitedFor(const std::string& address) {
    for (const Deadline limit = DeadlineAfter(std::chrono::seconds(60));
         SteadyClock::now() < limit;) {
      const auto report = GetWhyWaiting(address, limit);
      if (!report.ok()) continue;
      for (const pb::Wait& wait : report->wait()) {
        if (wait.kind() == pb::Wait::QUEUE) return true;
      }
    }
    return false;
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
  // The placer's own words of the second Neg.
  EXPECT_THAT(shown, HasSubstr("asks for /job:worker/task:1"));
  EXPECT_THAT(shown, HasSubstr("rule 6: no other device would do"));
  Process wrong("tools/millrace", {"page", "grpc://" + masters_[0].address, link + "nobody"});
  EXPECT_EQ(wrong.WaitForEnd(std::chrono::seconds(60)), 1) << wrong.output();
}

TEST_F(BusyClusterTest, TheTraceOfBothTasksIsOnePicture) {
  KeepBusy(0, std::chrono::milliseconds(1));
  const std::string file = StrCat(::testing::TempDir(), "/cluster_trace.json");
  Process asked("tools/millrace", {"trace", "grpc://" + masters_[0].address, "--steps=3",
                                   "--seconds=60", "--timeout=60", "-o", file});
  ASSERT_EQ(asked.WaitForEnd(std::chrono::seconds(90)), 0) << asked.output();
  const auto picture = nlohmann::json::parse(std::ifstream(file));
  std::map<int, std::string> processes;          // name by number
  std::map<int, std::pair<int, int>> transfers;  // the processes that arrows lead from and to
  int steps = 0, critical = 0;
  for (const auto& event : picture["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase == "M" && event["name"] == "process_name") {
      processes[event["pid"]] = event["args"]["name"];
    }
    if (phase == "s") transfers[event["id"]].first = event["pid"];
    if (phase == "f") transfers[event["id"]].second = event["pid"];
    if (phase == "X" && event["cat"] == "step") ++steps;
    if (phase == "X" && event["cat"] == "critical path") ++critical;
  }
  EXPECT_EQ(steps, 3);
  EXPECT_GE(critical, 3);
  // One to the second task, and one back with the result.
  const std::string first = "/job:worker/replica:0/task:0/device:CPU:0";
  const std::string second = "/job:worker/replica:0/task:1/device:CPU:0";
  std::map<std::pair<std::string, std::string>, int> ways;
  for (const auto& [id, ends] : transfers) ++ways[{processes[ends.first], processes[ends.second]}];
  EXPECT_THAT(ways, ::testing::UnorderedElementsAre(::testing::Pair(std::pair(first, second), 3),
                                                    ::testing::Pair(std::pair(second, first), 3)));
}

TEST_F(BusyClusterTest, TopHasRatesAndWhoIsWaitedFor) {
  // The first task waits for what a queue of the second one does not have yet.
  Master& master = masters_[0];
  const Scope root = master.graph.root();
  const Scope other = root.WithDevice("/job:worker/task:1");
  const Output queue = ops::FIFOQueueV2(other, {kFloat});
  const Output late = ops::Neg(root.WithDevice("/job:worker/task:0"),
                               ops::QueueDequeueV2(other, queue, {kFloat})[0]);
  const Operation enqueue = ops::QueueEnqueueV2(other, queue, {1.0f});
  ASSERT_TRUE(root.status().ok()) << root.status();
  RunOneStep(&master);  // the nodes are there before several threads run steps
  std::thread waiting([&] {
    const auto value = master.session->Run({}, {late});
    EXPECT_TRUE(value.ok()) << value.status();
  });
  KeepBusy(0, std::chrono::milliseconds(1));
  EXPECT_TRUE(WaitUntilAQueueIsWaitedFor(master.address));
  Process top("tools/millrace", {"top", "grpc://" + master.address, "--json", "--count=2",
                                 "--interval=1", "--timeout=60"});
  EXPECT_EQ(top.WaitForEnd(std::chrono::seconds(90)), 0) << top.output();
  const auto enqueued = master.session->Run({}, {}, {enqueue});
  EXPECT_TRUE(enqueued.ok()) << enqueued.status();
  waiting.join();
  int looks = 0;
  for (const std::string_view line : StrSplit(StripWhitespace(top.output()), '\n')) {
    const auto look = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(look.is_object()) << line;
    ASSERT_EQ(look["tasks"].size(), 2u) << line;
    const auto& first = look["tasks"][0];
    const auto& second = look["tasks"][1];
    EXPECT_GT(first["steps_per_second"], 0) << line;
    EXPECT_GT(first["examples_per_second"], 2 * first["steps_per_second"].get<double>())
        << "four a step: " << line;
    EXPECT_GE(first["waiting"], 1) << line;
    EXPECT_EQ(first["waiting_for"], second["task"]) << line;
    EXPECT_GT(second["received_bytes_per_second"], 0) << line;
    EXPECT_EQ(second["steps_per_second"], 0) << line;
    ++looks;
  }
  EXPECT_EQ(looks, 2);
}

TEST_F(BusyClusterTest, NobodyWaitsForAMasterThatIsIdle) {
  KeepBusy(1, std::chrono::milliseconds(1));
  EXPECT_THAT(Ask("profile"), HasSubstr("Neg"));
  const std::string text = Ask("doctor");
  EXPECT_THAT(text, HasSubstr("/job:worker/replica:0/task:1: compute"));
  // Both do the same; observe_cluster_test has one that is slow.
  EXPECT_THAT(text, ::testing::ContainsRegex("straggler: /job:worker/replica:0/task:[01], in "
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
