// SPDX-License-Identifier: Apache-2.0
// Clients that open sessions at servers and vanish: what they leave behind is freed, and the
// servers serve on.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "session/async_join.h"
#include "session/master_interface.h"
#include "tests/cluster/server_processes.h"

namespace millrace::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

CallOptions Soon() { return {.deadline = DeadlineAfter(seconds(60))}; }

// What the servers do with a session that nobody calls for a second.
const std::vector<std::string> kOneSecond = {"--session_idle_limit=1"};
constexpr seconds kIdleLimit{1};

// What /proc says: "VmRSS" in KiB, "Threads".
int64_t StatusOf(pid_t pid, const std::string& field) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1));
  }
  ADD_FAILURE() << "process " << pid << " has no " << field;
  return 0;
}

// 256 KiB of constants in each task, and a sum over both.
const pb::GraphDef& Graph() {
  static const auto* const graph = [] {
    auto* def = new pb::GraphDef;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        R"(versions { producer: 1395 }
           node { name: "a" op: "Const" device: "/job:ps/task:0"
                  attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value {
                    tensor { dtype: DT_FLOAT tensor_shape { dim { size: 65536 } } } } } }
           node { name: "b" op: "Const" device: "/job:worker/task:0"
                  attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value {
                    tensor { dtype: DT_FLOAT tensor_shape { dim { size: 65536 } } } } } }
           node { name: "x" op: "Placeholder" device: "/job:worker/task:0"
                  attr { key: "dtype" value { type: DT_FLOAT } } }
           node { name: "c" op: "AddV2" input: "a" input: "b" device: "/job:worker/task:0"
                  attr { key: "T" value { type: DT_FLOAT } } }
           node { name: "y" op: "AddV2" input: "c" input: "x" device: "/job:worker/task:0"
                  attr { key: "T" value { type: DT_FLOAT } } })",
        def));
    for (int i = 0; i < 2; ++i) {
      auto& tensor = *(*def->mutable_node(i)->mutable_attr())["value"].mutable_tensor();
      std::string content(65536 * 4, '\0');
      for (std::size_t k = 0; k < content.size(); k += 4) content[k] = static_cast<char>(k >> 8);
      tensor.set_tensor_content(content);
    }
    return def;
  }();
  return *graph;
}

Status RunOnce(MasterInterface& master, const std::string& handle) {
  RunStepArgs args;
  args.session_handle = handle;
  args.feeds = {{"x:0", Tensor::Scalar<float>(1)}};
  args.fetches = {"y:0"};
  return RunStep(master, std::move(args)).status();
}

// A session that was used in one of three ways, and is not closed.
StatusOr<std::string> OpenAndUse(MasterInterface& master, int how) {
  const StatusOr<std::string> handle = OpenSession(master, Graph());
  if (!handle.ok()) return handle;
  Status status;
  if (how % 3 == 0) {
    status = RunOnce(master, *handle);
  } else if (how % 3 == 1) {  // a partial run that is never ended
    PartialRunSetupArgs setup;
    setup.session_handle = *handle;
    setup.feeds = {"x:0"};
    setup.fetches = {"c:0", "y:0"};
    RunStepArgs part;
    status = Await([&](auto done) {
      master.PartialRunSetupAsync(Soon(), setup, &part.partial_run_handle, done);
    });
    if (!status.ok()) return status;
    part.session_handle = *handle;
    part.fetches = {"c:0"};
    status = RunStep(master, std::move(part)).status();
  } else {  // a callable that is never released
    MakeCallableArgs make;
    make.session_handle = *handle;
    make.options.add_feed("x:0");
    make.options.add_fetch("y:0");
    RunCallableArgs run;
    status = Await([&](auto done) { master.MakeCallableAsync(Soon(), make, &run.callable, done); });
    if (!status.ok()) return status;
    run.session_handle = *handle;
    run.feeds = {Tensor::Scalar<float>(1)};
    RunStepResult result;
    status = Await([&](auto done) { master.RunCallableAsync(Soon(), &run, &result, done); });
  }
  if (!status.ok()) return status;
  return handle;
}

// Again, for a minute, where the machine stood still for so long that the session was idle.
StatusOr<std::string> OpenAndUseInTime(MasterInterface& master, int how) {
  const auto give_up = std::chrono::steady_clock::now() + seconds(60);
  while (true) {
    const auto begin = std::chrono::steady_clock::now();
    StatusOr<std::string> handle = OpenAndUse(master, how);
    const auto end = std::chrono::steady_clock::now();
    if (handle.ok() || end - begin < kIdleLimit || end > give_up) return handle;
  }
}

// Clients of their own, which never say good-bye. The last session of each.
std::vector<std::string> Abandon(const ServerProcesses& servers, int clients, int sessions) {
  std::vector<std::string> last;
  for (int i = 0; i < clients; ++i) {
    const std::shared_ptr<MasterInterface> master = servers.Connect();
    if (master == nullptr) return last;
    for (int k = 0; k < sessions; ++k) {
      const StatusOr<std::string> handle = OpenAndUseInTime(*master, k);
      EXPECT_TRUE(handle.ok()) << handle.status();
      if (!handle.ok()) return last;
      if (k + 1 == sessions) last.push_back(*handle);
    }
  }
  return last;
}

// Until the master has forgotten the session.
bool WaitUntilForgotten(MasterInterface& master, const std::string& handle) {
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    ListDevicesResult devices;  // of a session that is not there: InvalidArgument
    const Status status =
        Await([&](auto done) { master.ListDevicesAsync(Soon(), handle, &devices, done); });
    if (!status.ok()) {
      EXPECT_THAT(std::string(Message(status)), HasSubstr("is not found"));
      return true;
    }
    // Longer than the limit: asking is a call, and keeps the session.
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  }
  return false;
}

// A master forgets a session before its tasks have freed what it had: until they have, or for too
// long. The last value.
int64_t WaitUntilBelow(pid_t pid, const char* field, int64_t limit) {
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  int64_t value = StatusOf(pid, field);
  while (value >= limit && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    value = StatusOf(pid, field);
  }
  return value;
}

TEST(AbandonedSessions, AreClosedAndGiveTheirMemoryBack) {
  const ServerProcesses servers(kOneSecond);
  const std::shared_ptr<MasterInterface> other = servers.Connect();
  ASSERT_NE(other, nullptr);
  // What a server keeps for itself once it has been as busy as this does not count: the places
  // that so many small objects had.
  std::vector<std::string> last = Abandon(servers, 50, 20);
  ASSERT_EQ(last.size(), 50u);
  ASSERT_TRUE(WaitUntilForgotten(*other, last.back()));
  std::vector<int64_t> memory, threads;
  for (const pid_t pid : servers.pids()) {
    memory.push_back(StatusOf(pid, "VmRSS"));
    threads.push_back(StatusOf(pid, "Threads"));
  }

  last = Abandon(servers, 50, 20);
  ASSERT_EQ(last.size(), 50u);
  ASSERT_TRUE(WaitUntilForgotten(*other, last.back()));

  for (std::size_t i = 0; i < 2; ++i) {
    const pid_t pid = servers.pids()[i];
    // The sessions' constants alone are 250 MiB in each task.
    const int64_t most = memory[i] + 64 * 1024;
    EXPECT_LT(WaitUntilBelow(pid, "VmRSS", most), most) << i;
    EXPECT_LT(WaitUntilBelow(pid, "Threads", threads[i] + 10), threads[i] + 10) << i;
  }
  const StatusOr<std::string> handle = OpenAndUseInTime(*other, 0);
  EXPECT_TRUE(handle.ok()) << handle.status();
}

TEST(AbandonedSessions, ASessionThatIsCalledIsKept) {
  const ServerProcesses servers(kOneSecond);
  const std::shared_ptr<MasterInterface> master = servers.Connect();
  ASSERT_NE(master, nullptr);
  // Three limits long, at a fifth of the limit; anew when the machine stood still for a second.
  auto last = std::chrono::steady_clock::now();
  StatusOr<std::string> handle = OpenAndUseInTime(*master, 0);
  ASSERT_TRUE(handle.ok()) << handle.status();
  for (int i = 0; i < 15; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const auto begin = std::chrono::steady_clock::now();
    const Status status = RunOnce(*master, *handle);
    if (!status.ok() && std::chrono::steady_clock::now() - last >= kIdleLimit) {
      last = std::chrono::steady_clock::now();
      handle = OpenAndUseInTime(*master, 0);
      ASSERT_TRUE(handle.ok()) << handle.status();
      i = -1;
      continue;
    }
    ASSERT_TRUE(status.ok()) << status;
    last = begin;
  }
  ASSERT_TRUE(WaitUntilForgotten(*master, *handle));
  EXPECT_EQ(RunOnce(*master, *handle).code(), StatusCode::kAborted);
}

}  // namespace
}  // namespace millrace::testing
