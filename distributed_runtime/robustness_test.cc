// SPDX-License-Identifier: Apache-2.0
// What clients and masters that misbehave, or vanish, cannot do to a server: deafen it, starve it,
// fill it, or keep it from stopping.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "distributed_runtime/service/control_service.h"
#include "distributed_runtime/stub/remote_master.h"
#include "distributed_runtime/task_server.h"
#include "distributed_runtime/test_engine.h"
#include "proto/master.pb.h"
#include "proto/worker.pb.h"
#include "session/async_join.h"
#include "session/client_session.h"
#include "tests/cluster/free_ports.h"
#include "transport/grpc/client_pool.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/methods.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kThreads = 2;  // of the server, for kernels
constexpr char kTask[] = "/job:worker/replica:0/task:0";

Deadline Soon() { return DeadlineAfter(seconds(60)); }

TaskServerOptions OneTask() {
  TaskServerOptions options;
  options.server.cluster = *ClusterSpec::Parse("worker|127.0.0.1:0");
  options.server.job_name = "worker";
  options.server.inter_op_threads = kThreads;
  options.server.intra_op_threads = 1;
  options.ops = &TheTestEngine().ops;
  options.kernels = &TheTestEngine().kernels;
  return options;
}

std::unique_ptr<TaskServer> Start(const TaskServerOptions& options = OneTask()) {
  StatusOr<std::unique_ptr<TaskServer>> server = TaskServer::Create(options);
  EXPECT_TRUE(server.ok()) << server.status();
  const Status started = (*server)->Start();
  EXPECT_TRUE(started.ok()) << started;
  return *std::move(server);
}

std::shared_ptr<MasterInterface> Connect(const TaskServer& server) {
  return NewGrpcRemoteMaster(server.address(), ClientPool());
}

std::unique_ptr<ClientSession> Open(const std::shared_ptr<MasterInterface>& master,
                                    const pb::GraphDef& graph) {
  StatusOr<std::unique_ptr<ClientSession>> session = ClientSession::Create(master, graph, {});
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

Status Call(const TaskServer& server, const char* method,
            const google::protobuf::MessageLite& request, google::protobuf::MessageLite* response,
            Deadline deadline = Soon()) {
  RpcChannel channel(server.address(), server.address(), ClientPool());
  return Await([&](auto done) {
    channel.Call(method, {deadline, nullptr}, ToByteBuffer(request), RpcChannel::IfDown::kFail,
                 [&, done](Status status, const grpc::ByteBuffer& bytes) {
                   if (status.ok()) status = ReceivedBytes(bytes).Parse(response);
                   done(std::move(status));
                 });
  });
}

// while (true) x = x: the value of `name` never comes.
void AddEndlessLoop(TestGraph* graph, const std::string& name) {
  graph->Const(name + "/start", 0);
  pb::NodeDef* const yes = graph->Add(name + "/true", "Const");
  (*yes->mutable_attr())["dtype"].set_type(pb::DT_BOOL);
  auto& value = *(*yes->mutable_attr())["value"].mutable_tensor();
  value.set_dtype(pb::DT_BOOL);
  value.mutable_tensor_shape();
  value.add_bool_val(true);
  const auto set_type = [](pb::NodeDef* node, pb::DataType type) {
    (*node->mutable_attr())["T"].set_type(type);
    return node;
  };
  const auto enter = [&](const std::string& to, const std::string& from, pb::DataType type) {
    pb::NodeDef* const node = set_type(graph->Add(to, "Enter", {from}), type);
    (*node->mutable_attr())["frame_name"].set_s(name);
    (*node->mutable_attr())["is_constant"].set_b(type == pb::DT_BOOL);
    (*node->mutable_attr())["parallel_iterations"].set_i(10);
  };
  enter(name + "/x", name + "/start", pb::DT_FLOAT);
  enter(name + "/always", name + "/true", pb::DT_BOOL);
  pb::NodeDef* const merge =
      set_type(graph->Add(name + "/merge", "Merge", {name + "/x", name + "/next"}), pb::DT_FLOAT);
  (*merge->mutable_attr())["N"].set_i(2);
  graph->Add(name + "/cond", "LoopCond", {name + "/always"});
  set_type(graph->Add(name + "/switch", "Switch", {name + "/merge", name + "/cond"}), pb::DT_FLOAT);
  set_type(graph->Add(name + "/body", "Identity", {name + "/switch:1"}), pb::DT_FLOAT);
  set_type(graph->Add(name + "/next", "NextIteration", {name + "/body"}), pb::DT_FLOAT);
  set_type(graph->Add(name, "Exit", {name + "/switch"}), pb::DT_FLOAT);
}

// Steps that are under way; waits for them at the end.
class Running {
 public:
  ~Running() {
    for (std::thread& thread : threads_) thread.join();
  }
  void Start(ClientSession* session, const std::string& fetch) {
    threads_.emplace_back([this, session, fetch] {
      const Status status = session->Run({}, {fetch}).status();
      if (!status.ok()) ++failed_;
    });
  }
  int failed() const { return failed_; }

 private:
  std::vector<std::thread> threads_;
  std::atomic<int> failed_{0};
};

TEST(Robustness, AnswersWhileKernelsHoldAllThreads) {
  const auto server = Start();
  TestGraph graph;
  graph.Const("one", 1);
  for (int i = 0; i < kThreads; ++i) graph.Gate(StrCat("gate", i));
  const std::shared_ptr<MasterInterface> master = Connect(*server), other = Connect(*server);
  const auto session = Open(master, graph.def());
  const auto idle = Open(other, graph.def());
  ASSERT_TRUE(session != nullptr && idle != nullptr);
  Running running;
  for (int i = 0; i < kThreads; ++i) running.Start(session.get(), StrCat("gate", i, ":0"));
  ASSERT_TRUE(WaitUntilGatesBlock(kThreads));

  pb::GetStatusResponse status;
  EXPECT_TRUE(Call(*server, methods::kWorkerGetStatus, pb::GetStatusRequest(), &status).ok());
  EXPECT_EQ(status.device_attributes_size(), 1);
  EXPECT_TRUE(GetControlStatus(server->address(), Soon()).ok());
  pb::CleanupGraphRequest cleanup;
  cleanup.set_step_id(1);
  pb::CleanupGraphResponse cleaned;
  EXPECT_TRUE(Call(*server, methods::kWorkerCleanupGraph, cleanup, &cleaned).ok());
  EXPECT_TRUE(idle->Close().ok());
  // A step that waits for a thread ends when its caller wants that, and is never begun.
  const Deadline begun = SteadyClock::now();
  ClientSession::RunRequest request;
  request.fetches = {"one:0"};
  request.options.set_timeout_in_ms(100);
  EXPECT_FALSE(session->Run(request).ok());
  EXPECT_LT(SteadyClock::now() - begun, seconds(50));
  OpenGates();
}

TEST(Robustness, LoopsLeaveTheirThreadsToOthers) {
  const auto server = Start();
  TestGraph graph;
  graph.Const("one", 1);
  graph.Counter("count");
  AddEndlessLoop(&graph, "loop");
  const std::shared_ptr<MasterInterface> loops = Connect(*server), master = Connect(*server);
  const auto session = Open(loops, graph.def());
  const auto other = Open(master, graph.def());
  ASSERT_TRUE(session != nullptr && other != nullptr);
  Running running;
  for (int i = 0; i < 2 * kThreads; ++i) running.Start(session.get(), "loop:0");
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(other->Run({}, {"one:0"}).ok());
  EXPECT_TRUE(other->Close().ok());
  EXPECT_EQ(running.failed(), 0);
  EXPECT_TRUE(session->Close().ok());  // which ends the loops
}

// Closes a session at the server: that waits for its steps.
TEST(Robustness, AClientThatGoesAwayEndsItsLoops) {
  const auto server = Start();
  TestGraph graph;
  AddEndlessLoop(&graph, "loop");
  const std::shared_ptr<MasterInterface> other = Connect(*server);
  CreateSessionArgs create;
  create.graph = graph.def();
  CreateSessionResult created;
  ASSERT_TRUE(Await([&](auto done) {
                other->CreateSessionAsync({Soon(), nullptr}, std::move(create), &created, done);
              }).ok());
  std::vector<RunStepArgs> args(2 * kThreads);
  std::vector<RunStepResult> results(args.size());
  BlockingCounter ended(static_cast<int>(args.size()));
  {
    std::shared_ptr<MasterInterface> client = Connect(*server);
    for (std::size_t i = 0; i < args.size(); ++i) {
      args[i].session_handle = created.session_handle;
      args[i].fetches = {"loop:0"};
      client->RunStepAsync({}, &args[i], &results[i], [&](const Status& status) {
        EXPECT_FALSE(status.ok());
        ended.DecrementCount();
      });
    }
    // All have arrived: something that came later is answered.
    ListDevicesResult devices;
    EXPECT_TRUE(Await([&](auto done) {
                  client->ListDevicesAsync({Soon(), nullptr}, created.session_handle, &devices,
                                           done);
                }).ok());
  }  // the connection goes, with the calls
  ASSERT_TRUE(ended.WaitUntil(Soon()));
  const Status closed = Await([&](auto done) {
    other->CloseSessionAsync({Soon(), nullptr}, created.session_handle, done);
  });
  EXPECT_TRUE(closed.ok()) << closed;
}

TEST(Robustness, APipeIsRefusedAndHoldsNoThreadOfTheServer) {
  const std::string pipe = ::testing::TempDir() + "/robustness_pipe";
  (void)unlink(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  auto server = Start();
  TestGraph graph;
  graph.Const("one", 1);
  pb::NodeDef* const path = graph.Add("path", "Const");
  (*path->mutable_attr())["dtype"].set_type(pb::DT_STRING);
  auto& value = *(*path->mutable_attr())["value"].mutable_tensor();
  value.set_dtype(pb::DT_STRING);
  value.mutable_tensor_shape();
  value.add_string_val(pipe);
  graph.Add("read", "ReadFile", {"path"});
  const std::shared_ptr<MasterInterface> master = Connect(*server);
  const auto session = Open(master, graph.def());
  ASSERT_NE(session, nullptr);
  for (int i = 0; i < 2 * kThreads; ++i) {
    const Status refused = session->Run({}, {"read:0"}).status();
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << refused;
    EXPECT_THAT(std::string(Message(refused)), ::testing::HasSubstr(pipe + ": it is a pipe"));
  }
  EXPECT_TRUE(session->Run({}, {"one:0"}).ok());
  EXPECT_TRUE(session->Close().ok());
  EXPECT_TRUE(server->Stop(SteadyClock::now()).ok());
  (void)unlink(pipe.c_str());
}

TEST(Robustness, ServersThatCannotBeComposedSayWhy) {
  TaskServerOptions options = OneTask();
  options.devices = {};
  options.server.cluster = *ClusterSpec::Parse("worker|127.0.0.1:0");
  options.device_count["NO_SUCH_DEVICE"] = 1;
  options.server.num_cpu_devices = 100'000;
  StatusOr<std::unique_ptr<TaskServer>> server = TaskServer::Create(options);
  if (!server.ok()) return;  // told even sooner
  const Status started = (*server)->Start();
  EXPECT_FALSE(started.ok());
}

TEST(Robustness, RefusesRequestsThatAreTooLarge) {
  TaskServerOptions options = OneTask();
  options.server.max_message_size = 10'000;
  const auto server = Start(options);
  pb::GetStatusResponse response;
  pb::RegisterGraphRequest request;
  request.set_session_handle(std::string(20'000, 'x'));
  pb::RegisterGraphResponse registered;
  const Status status = Call(*server, methods::kWorkerRegisterGraph, request, &registered);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(Call(*server, methods::kWorkerGetStatus, pb::GetStatusRequest(), &response).ok());
}

// A worker's session is gone when its graphs are not found for want of the session.
bool SessionIsGone(const TaskServer& server, const std::string& handle) {
  pb::DeregisterGraphRequest request;
  request.set_create_worker_session_called(true);
  request.set_session_handle(handle);
  request.set_graph_handle("none");
  pb::DeregisterGraphResponse response;
  const Status status = Call(server, methods::kWorkerDeregisterGraph, request, &response);
  return Message(status).find("Session handle is not found") != std::string_view::npos;
}

bool WaitUntilGone(const TaskServer& server, const std::string& handle) {
  const Deadline limit = Soon();
  while (!SessionIsGone(server, handle)) {
    if (SteadyClock::now() > limit) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

void OpenSessionOf(const TaskServer& server, const std::string& handle, const std::string& master,
                   int64_t incarnation) {
  pb::CreateWorkerSessionRequest request;
  request.set_session_handle(handle);
  request.set_master_task(master);
  request.set_master_incarnation(incarnation);
  pb::CreateWorkerSessionResponse response;
  const Status status = Call(server, methods::kWorkerCreateWorkerSession, request, &response);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(Robustness, SessionsOfMastersThatAreGoneAreClosed) {
  // Nothing listens at port 1.
  TaskServerOptions options = OneTask();
  options.server.cluster = *ClusterSpec::Parse("worker|127.0.0.1:0,chief|127.0.0.1:1");
  options.server.peer_timeout = milliseconds(200);
  const auto server = Start(options);
  OpenSessionOf(*server, "of nobody", "", 12345);
  // Of a task that this one cannot ask: it may be in the master's specification only.
  OpenSessionOf(*server, "of a master elsewhere", "/job:other/replica:0/task:7", 12345);
  OpenSessionOf(*server, "of a dead master", "/job:chief/replica:0/task:0", 12345);
  EXPECT_FALSE(SessionIsGone(*server, "of nobody"));
  EXPECT_TRUE(WaitUntilGone(*server, "of a dead master"));
  EXPECT_FALSE(SessionIsGone(*server, "of nobody"));
  EXPECT_FALSE(SessionIsGone(*server, "of a master elsewhere"));
}

TEST(Robustness, SessionsOfMastersThatRestartedAreClosedWithoutANewOne) {
  const std::vector<int> ports = testing::FreePorts(2);
  TaskServerOptions options = OneTask();
  options.server.cluster =
      *ClusterSpec::Parse(StrCat("worker|127.0.0.1:", ports[0], ",chief|127.0.0.1:", ports[1]));
  options.server.peer_timeout = seconds(10);  // asked every 2 s; silence is not why
  const auto server = Start(options);
  options.server.job_name = "chief";
  const auto start_chief = [&](int64_t* incarnation) {
    auto chief = Start(options);
    pb::GetStatusResponse status;
    EXPECT_TRUE(Call(*chief, methods::kWorkerGetStatus, pb::GetStatusRequest(), &status).ok());
    *incarnation = static_cast<int64_t>(status.device_attributes(0).incarnation());
    return chief;
  };
  int64_t first = 0, second = 0;
  auto chief = start_chief(&first);
  OpenSessionOf(*server, "before", "/job:chief/replica:0/task:0", first);
  chief = nullptr;
  chief = start_chief(&second);
  EXPECT_TRUE(WaitUntilGone(*server, "before"));
}

TEST(Robustness, AClientMakesNoFilesByAskingForThePlacement) {
  const std::string folder = ::testing::TempDir() + "/robustness_tmp";
  std::filesystem::create_directories(folder);
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("TMPDIR", folder.c_str(), 1);
  {
    const auto server = Start();
    TestGraph graph;
    graph.Const("one", 1);
    ClientSession::Options options;
    options.config.set_log_device_placement(true);
    const auto session = ClientSession::Create(Connect(*server), graph.def(), options);
    EXPECT_TRUE(session.ok()) << session.status();
  }
  before == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", kept.c_str(), 1);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

}  // namespace
}  // namespace millrace
