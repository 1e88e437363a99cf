// SPDX-License-Identifier: Apache-2.0
// Services beside a session.
#include "millrace/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "base/errors.h"
#include "base/mutex.h"
#include "millrace/saver.h"
#include "millrace/summary.h"
#include "tests/monitored_sessions/golden.h"

namespace millrace::testing {
namespace {

using std::chrono::milliseconds;

TEST(Supervisor, SavesByTheClockAndRestores) {
  const TestDirectory directory("supervisor");
  SupervisorOptions options;
  options.logdir = directory.path();
  options.save_model_time = milliseconds(20);
  options.save_summaries_time = milliseconds(20);
  Mutex mu;
  std::vector<std::string> lines;
  options.io.log = [&](const std::string& line) {
    MutexLock lock(&mu);
    lines.push_back(line);
  };
  {
    TrainingGraph g;
    const auto supervisor = Supervisor::Create(g.graph, options);
    ASSERT_TRUE(supervisor.ok()) << supervisor.status();
    const auto session = (*supervisor)->PrepareOrWaitForSession();
    ASSERT_TRUE(session.ok()) << session.status();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE((*session)->Run({}, {g.train}).ok());
    while (!LatestCheckpoint(directory.path()).ends_with("model.ckpt-3")) {
      ASSERT_FALSE((*supervisor)->ShouldStop());
      std::this_thread::sleep_for(milliseconds(5));
    }
    const Status status = (*supervisor)->Stop();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE((*supervisor)->ShouldStop());
  }
  TrainingGraph g;
  const auto supervisor = Supervisor::Create(g.graph, options);
  ASSERT_TRUE(supervisor.ok()) << supervisor.status();
  const auto session = (*supervisor)->PrepareOrWaitForSession();
  ASSERT_TRUE(session.ok()) << session.status();
  const auto result = (*session)->Run({}, {g.train});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].scalar<int64_t>(), 4);
  EXPECT_TRUE((*supervisor)->Stop().ok());
}

TEST(Supervisor, WaitsAtItsEndForWhatIsWrittenAsideAndSaysWhatBecameOfIt) {
  for (const bool fails : {false, true}) {
    const TestDirectory directory(fails ? "supervisor_aside_fails" : "supervisor_aside");
    SupervisorOptions options;
    options.logdir = directory.path();
    options.save_model_time = std::chrono::hours(1);  // at the beginning, and not again
    options.save_summaries_time = milliseconds(0);
    // No state file can be written where a folder has its name.
    if (fails) std::filesystem::create_directories(options.logdir + "/checkpoint");
    TrainingGraph g;
    options.scaffold = std::make_shared<Scaffold>();
    options.scaffold->saver = *Saver::Create(g.graph, {.asynchronous = true});
    const auto supervisor = Supervisor::Create(g.graph, options);
    ASSERT_TRUE(supervisor.ok()) << supervisor.status();
    const auto session = (*supervisor)->PrepareOrWaitForSession();
    ASSERT_TRUE(session.ok()) << session.status();
    const std::string index = options.logdir + "/model.ckpt-0.index";
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!std::filesystem::exists(index) && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    const Status status = (*supervisor)->Stop();
    EXPECT_EQ(status.ok(), !fails) << status;
    if (fails) {
      EXPECT_NE(status.message().find("does not name it"), std::string::npos) << status;
    } else {
      EXPECT_EQ(LatestCheckpoint(options.logdir), options.logdir + "/model.ckpt-0");
    }
  }
}

TEST(Supervisor, CountsByTheStepThatItIsGivenAndWritesWhereItIsTold) {
  const TestDirectory logs("supervisor_logs"), events("supervisor_events");
  TrainingGraph g;
  const Scope root = g.graph.root();
  const Variable own = MakeVariable(root, "own_step", Constant(root, Tensor::Scalar<int64_t>(70)),
                                    {.trainable = false});
  auto made = EventWriter::Create(events.path());
  ASSERT_TRUE(made.ok()) << made.status();
  SupervisorOptions options;
  options.logdir = logs.path();
  options.save_model_time = milliseconds(5);
  options.save_summaries_time = milliseconds(0);
  options.global_step = own.read;
  options.summary_writer = *std::move(made);
  const auto supervisor = Supervisor::Create(g.graph, options);
  ASSERT_TRUE(supervisor.ok()) << supervisor.status();
  EXPECT_TRUE(errors::IsFailedPrecondition((*supervisor)->StartServices())) << "no session yet";
  EXPECT_TRUE(errors::IsFailedPrecondition((*supervisor)->SummaryComputed("")));
  ASSERT_TRUE((*supervisor)->PrepareOrWaitForSession(/*start_services=*/false).ok());
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(LatestCheckpoint(logs.path()), "") << "nobody has started it";
  ASSERT_TRUE((*supervisor)->SummaryComputed("").ok());
  ASSERT_TRUE((*supervisor)->StartServices().ok());
  while (!LatestCheckpoint(logs.path()).ends_with("model.ckpt-70")) {
    ASSERT_FALSE((*supervisor)->ShouldStop());
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_TRUE((*supervisor)->Stop().ok());
  for (const auto& entry : std::filesystem::directory_iterator(logs.path())) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("events.")) << entry.path();
  }
}

// As TensorFlow's: for people, and for TensorBoard.
TEST(Supervisor, WritesItsGraphItsCheckpointsAndItsEnd) {
  const TestDirectory directory("supervisor_events");
  TrainingGraph g;
  SupervisorOptions options;
  options.logdir = directory.path();
  options.save_model_time = milliseconds(5);
  options.save_summaries_time = milliseconds(0);
  const auto supervisor = Supervisor::Create(g.graph, options);
  ASSERT_TRUE(supervisor.ok()) << supervisor.status();
  const auto session = (*supervisor)->PrepareOrWaitForSession(/*start_services=*/false);
  ASSERT_TRUE(session.ok()) << session.status();
  const auto text = g.graph.ToText();
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(directory.Read("graph.pbtxt"), *text);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE((*session)->Run({}, {g.train}).ok());
  ASSERT_TRUE((*supervisor)->StartServices().ok());
  while (LatestCheckpoint(directory.path()).empty()) {
    ASSERT_FALSE((*supervisor)->ShouldStop());
    std::this_thread::sleep_for(milliseconds(2));
  }
  EXPECT_TRUE((*supervisor)->Stop().ok());
  EXPECT_TRUE((*supervisor)->Stop().ok()) << "says nothing a second time";
  const std::vector<Json> events = EventsIn(directory);
  ASSERT_GE(events.size(), 6u) << Json(events).dump();
  const std::vector<Json> first(events.begin(), events.begin() + 5);
  EXPECT_EQ(Json(first), Json::parse(R"([
      [0, "file_version"], [0, "graph_def"], [0, "meta_graph_def"],
      [3, "session_log", "START", ""], [3, "session_log", "CHECKPOINT", "model.ckpt"]])"));
  EXPECT_EQ(events.back(), Json::parse(R"([0, "session_log", "STOP", ""])"));
  EXPECT_NE(events[events.size() - 2][2], "STOP");
}

TEST(Supervisor, StopsForTheErrorOfAThreadAndReturnsIt) {
  TrainingGraph g;
  const auto supervisor = Supervisor::Create(g.graph, {});
  ASSERT_TRUE(supervisor.ok()) << supervisor.status();
  ASSERT_TRUE((*supervisor)->PrepareOrWaitForSession().ok());
  ASSERT_TRUE((*supervisor)
                  ->coordinator()
                  .StartThread("input", [] { return errors::DataLoss("a file"); })
                  .ok());
  while (!(*supervisor)->ShouldStop()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(errors::IsDataLoss((*supervisor)->Stop()));
  // Another session is another beginning.
  ASSERT_TRUE((*supervisor)->PrepareOrWaitForSession().ok());
  EXPECT_FALSE((*supervisor)->ShouldStop());
}

}  // namespace
}  // namespace millrace::testing
