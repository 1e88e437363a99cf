// What clients and masters that misbehave, or vanish, cannot do to a server: deafen it, starve it,
// fill it, or keep it from stopping.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "distributed_runtime/grpc/client_pool.h"
#include "distributed_runtime/grpc/control_service.h"
#include "distributed_runtime/grpc/methods.h"
#include "distributed_runtime/grpc/remote_master.h"
#include "distributed_runtime/grpc/rpc_channel.h"
#include "distributed_runtime/task_server.h"
#include "master/session_test_util.h"
#include "proto/master.pb.h"
#include "proto/worker.pb.h"
#include "session/async_join.h"
#include "session/client_session.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kThreads = 2;  // of the server, for kernels
constexpr char kTask[] = "/job:worker/replica:0/task:0";

Deadline Soon() { return DeadlineAfter(seconds(60)); }

struct Engine {
  Engine() { RegisterTestOpsAndKernels(ops, kernels); }
  OpRegistry ops;
  KernelRegistry kernels;
};
const Engine& TheEngine() {
  static const auto* const engine = new Engine;
  return *engine;
}

TaskServerOptions OneTask() {
  TaskServerOptions options;
  options.server.cluster = *ClusterSpec::Parse("worker|127.0.0.1:0");
  options.server.job_name = "worker";
  options.server.inter_op_threads = kThreads;
  options.server.intra_op_threads = 1;
  options.ops = &TheEngine().ops;
  options.kernels = &TheEngine().kernels;
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

TEST(Robustness, SessionsOfMastersThatAreGoneAreClosed) {
  // Nothing listens at port 1.
  TaskServerOptions options = OneTask();
  options.server.cluster = *ClusterSpec::Parse("worker|127.0.0.1:0,chief|127.0.0.1:1");
  options.server.peer_timeout = milliseconds(200);
  const auto server = Start(options);
  const auto open = [&](const std::string& handle, const std::string& master) {
    pb::CreateWorkerSessionRequest request;
    request.set_session_handle(handle);
    request.set_master_task(master);
    request.set_master_incarnation(12345);
    pb::CreateWorkerSessionResponse response;
    const Status status = Call(*server, methods::kWorkerCreateWorkerSession, request, &response);
    EXPECT_TRUE(status.ok()) << status;
  };
  open("of nobody", "");
  open("of a dead master", "/job:chief/replica:0/task:0");
  EXPECT_FALSE(SessionIsGone(*server, "of nobody"));
  EXPECT_TRUE(WaitUntilGone(*server, "of a dead master"));
  EXPECT_FALSE(SessionIsGone(*server, "of nobody"));
}

TEST(Robustness, AClientMakesNoFilesByAskingForThePlacement) {
  const std::string folder = testing::TempDir() + "/robustness_tmp";
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
