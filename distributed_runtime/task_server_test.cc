// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/task_server.h"

#include <gtest/gtest.h>

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
#include "distributed_runtime/stub/remote_worker.h"
#include "distributed_runtime/test_engine.h"
#include "proto/master.pb.h"
#include "proto/worker.pb.h"
#include "rendezvous/rendezvous.h"
#include "session/client_session.h"
#include "tests/cluster/free_ports.h"
#include "transport/grpc/client_pool.h"
#include "transport/grpc/health_watch_testlib.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/methods.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kPsDevice[] = "/job:ps/task:0";
constexpr char kWorkerDevice[] = "/job:worker/task:0";

Deadline Soon() { return DeadlineAfter(seconds(30)); }

StatusOr<std::unique_ptr<TaskServer>> MakeServer(const ClusterSpec& cluster, const char* job,
                                                 int index = 0, bool accept_shutdown = false,
                                                 bool links = true) {
  TaskServerOptions options;
  options.links = links;
  options.server.cluster = cluster;
  options.server.job_name = job;
  options.server.task_index = index;
  options.server.inter_op_threads = 2;
  options.server.intra_op_threads = 1;
  options.server.accept_shutdown = accept_shutdown;
  options.ops = &TheTestEngine().ops;
  options.kernels = &TheTestEngine().kernels;
  return TaskServer::Create(options);
}

std::unique_ptr<TaskServer> StartServer(const ClusterSpec& cluster, const char* job,
                                        bool accept_shutdown = false) {
  StatusOr<std::unique_ptr<TaskServer>> server = MakeServer(cluster, job, 0, accept_shutdown);
  EXPECT_TRUE(server.ok()) << server.status();
  const Status started = (*server)->Start();
  EXPECT_TRUE(started.ok()) << started;
  return *std::move(server);
}

ClusterSpec OneTask() { return *ClusterSpec::Parse("worker|127.0.0.1:0"); }

// A ps and a worker in this process, which know each other's ports.
struct Pair {
  explicit Pair(bool links = true) {
    // Somebody else may take a port in between: then others are tried.
    for (int attempt = 0; attempt < 10; ++attempt) {
      const std::vector<int> ports = testing::FreePorts(2);
      const ClusterSpec spec =
          *ClusterSpec::Parse(StrCat("ps|127.0.0.1:", ports[0], ",worker|127.0.0.1:", ports[1]));
      ps = *MakeServer(spec, "ps", 0, false, links);
      worker = *MakeServer(spec, "worker", 0, false, links);
      if (ps->Start().ok() && worker->Start().ok()) return;
    }
    ADD_FAILURE() << "no two ports are free";
  }
  std::unique_ptr<TaskServer> ps, worker;
};

// One call by name, with messages.
Status CallRaw(const std::string& address, const char* method,
               const google::protobuf::MessageLite& request,
               google::protobuf::MessageLite* response, Deadline deadline = Soon()) {
  RpcChannel channel(address, address, ClientPool());
  Notification done;
  Status result;
  channel.Call(method, {deadline, nullptr}, ToByteBuffer(request), RpcChannel::IfDown::kFail,
               [&](Status status, const grpc::ByteBuffer& bytes) {
                 if (status.ok()) status = ReceivedBytes(bytes).Parse(response);
                 result = std::move(status);
                 done.Notify();
               });
  done.Wait();
  return result;
}

std::unique_ptr<ClientSession> OpenSession(std::shared_ptr<MasterInterface> master,
                                           const pb::GraphDef& graph) {
  StatusOr<std::unique_ptr<ClientSession>> session =
      ClientSession::Create(std::move(master), graph, {});
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

TestGraph SumOverTasks() {
  TestGraph graph;
  graph.Const("a", 2, kPsDevice);
  graph.Const("b", 3, kWorkerDevice);
  graph.Placeholder("x")->set_device(kPsDevice);
  graph.Sum("ax", "a", "x", kPsDevice);
  graph.Sum("sum", "ax", "b", kWorkerDevice);
  graph.Identity("back", "sum", kPsDevice);
  return graph;
}

// With links between the tasks, and without, as between hosts.
class AcrossTasks : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Transports, AcrossTasks, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Links" : "Grpc"; });

TEST_P(AcrossTasks, RunsGraphs) {
  Pair cluster(GetParam());
  // Directly in this process, and over the wire to the same master and to the other one.
  const std::shared_ptr<MasterInterface> masters[] = {
      *ConnectToMaster(cluster.worker->target()),
      NewGrpcRemoteMaster(cluster.worker->address(), ClientPool())};
  for (const auto& master : masters) {
    const auto session = OpenSession(master, SumOverTasks().def());
    ASSERT_NE(session, nullptr);
    for (int i = 0; i < 20; ++i) {
      const StatusOr<std::vector<Tensor>> values = session->Run(
          {{"x:0", Tensor::Scalar<float>(static_cast<float>(i))}}, {"back:0", "sum:0", "a:0"});
      ASSERT_TRUE(values.ok()) << values.status();
      EXPECT_EQ((*values)[0].scalar<float>(), 5.0f + static_cast<float>(i));
      EXPECT_EQ((*values)[1].scalar<float>(), 5.0f + static_cast<float>(i));
      EXPECT_EQ((*values)[2].scalar<float>(), 2.0f);
    }
    EXPECT_TRUE(session->Close().ok());
  }
}

TEST(TaskServer, RunsCallablesOverTheWire) {
  Pair cluster;
  const auto session = OpenSession(NewGrpcRemoteMaster(cluster.worker->address(), ClientPool()),
                                   SumOverTasks().def());
  ASSERT_NE(session, nullptr);
  pb::CallableOptions options;
  options.add_feed("x:0");
  options.add_fetch("sum:0");
  const StatusOr<int64_t> callable = session->MakeCallable(options);
  ASSERT_TRUE(callable.ok()) << callable.status();
  const StatusOr<std::vector<Tensor>> values =
      session->RunCallable(*callable, {Tensor::Scalar<float>(1)});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[0].scalar<float>(), 6.0f);
  EXPECT_TRUE(session->ReleaseCallable(*callable).ok());
}

TEST_P(AcrossTasks, AFailingKernelElsewhereEndsTheStepWithItsOwnCode) {
  Pair cluster(GetParam());
  TestGraph graph;
  graph.Fail("fail", kPsDevice);
  graph.Block("block", kWorkerDevice);
  const auto session = OpenSession(*ConnectToMaster(cluster.worker->target()), graph.def());
  ASSERT_NE(session, nullptr);
  const Status status = session->Run({}, {"fail:0", "block:0"}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(status).find("bad luck"), std::string_view::npos) << status;
  EXPECT_NE(Message(status).find("/job:ps/replica:0/task:0"), std::string_view::npos) << status;
}

TEST_P(AcrossTasks, AFailureIsToldOnceAlthoughItsReceiversHearOfItToo) {
  Pair cluster(GetParam());
  TestGraph graph;
  graph.Fail("fail", kPsDevice);
  graph.Identity("here", "fail", kWorkerDevice);
  graph.Identity("back", "here", kPsDevice);
  const auto session = OpenSession(*ConnectToMaster(cluster.worker->target()), graph.def());
  ASSERT_NE(session, nullptr);
  for (int i = 0; i < 50; ++i) {  // the receiver may be the first to tell the master, or not
    const Status status = session->Run({}, {"here:0", "back:0"}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    const std::string text(Message(status));
    EXPECT_EQ(text.find("root error"), std::string::npos) << text;
    EXPECT_EQ(text.find("From /job:ps/replica:0/task:0:\nbad luck"), 0u) << text;
    EXPECT_EQ(text.find("bad luck"), text.rfind("bad luck")) << text;
  }
}

TEST_P(AcrossTasks, APeerThatWentAwayIsUnavailableByName) {
  Pair cluster(GetParam());
  const auto session =
      OpenSession(*ConnectToMaster(cluster.worker->target()), SumOverTasks().def());
  ASSERT_NE(session, nullptr);
  ASSERT_TRUE(session->Run({{"x:0", Tensor::Scalar<float>(1)}}, {"sum:0"}).ok());
  cluster.ps.reset();
  const Status status = session->Run({{"x:0", Tensor::Scalar<float>(1)}}, {"sum:0"}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_NE(Message(status).find("/job:ps/replica:0/task:0"), std::string_view::npos) << status;
}

TEST(TaskServer, AnAbsentPeerEndsTheSessionsCreationAtItsDeadline) {
  auto server = StartServer(*ClusterSpec::Parse("worker|127.0.0.1:0,ps|127.0.0.1:1"), "worker");
  ClientSession::Options options;
  options.start_timeout = milliseconds(1'000);
  const Status status =
      ClientSession::Create(*ConnectToMaster(server->target()), TestGraph().def(), options)
          .status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(Message(status).find("/job:ps/replica:0/task:0"), std::string_view::npos) << status;
}

TEST(TaskServer, StoppingEndsBlockedStepsAndLaterCallsFail) {
  auto server = StartServer(OneTask(), "worker");
  TestGraph graph;
  graph.Block("block");
  const std::shared_ptr<MasterInterface> masters[] = {
      *ConnectToMaster(server->target()), NewGrpcRemoteMaster(server->address(), ClientPool())};
  std::vector<std::unique_ptr<ClientSession>> sessions;
  std::vector<std::thread> clients;
  Status ended[2];
  for (int i = 0; i < 2; ++i) {
    sessions.push_back(OpenSession(masters[i], graph.def()));
    ASSERT_NE(sessions.back(), nullptr);
    clients.emplace_back([session = sessions.back().get(), end = &ended[i]] {
      *end = session->Run({}, {"block:0"}).status();
    });
  }
  ASSERT_TRUE(WaitUntilOpsBlock(2));
  EXPECT_TRUE(server->Stop(DeadlineAfter(milliseconds(50))).ok());
  for (std::thread& client : clients) client.join();
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(ended[i].ok());
    EXPECT_EQ(sessions[i]->Run({}, {"block:0"}).status().code(), StatusCode::kUnavailable);
  }
  EXPECT_EQ(server->Start().code(), StatusCode::kFailedPrecondition);
}

TEST(TaskServer, NamesAPortThatIsTaken) {
  auto first = StartServer(OneTask(), "worker");
  auto second = MakeServer(*ClusterSpec::Parse(StrCat("worker|", first->address())), "worker");
  ASSERT_TRUE(second.ok()) << second.status();
  const Status status = (*second)->Start();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(Message(status).find(first->address()), std::string_view::npos) << status;
}

TEST(TaskServer, RefusesWhatItIsNot) {
  EXPECT_EQ(MakeServer(OneTask(), "ps").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeServer(OneTask(), "worker", 3).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeServer(*ClusterSpec::Parse("worker|192.0.2.1:2222"), "worker").status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(ConnectToMaster("local").status().code(), StatusCode::kInvalidArgument);
}

int CountThreads() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/self/task")) {
    ++count;
  }
  return count;
}

TEST(TaskServer, StartsAndStopsManyTimesWithoutLeavingThreads) {
  const auto cycle = [] {
    Pair cluster;
    const auto session =
        OpenSession(*ConnectToMaster(cluster.worker->target()), SumOverTasks().def());
    ASSERT_NE(session, nullptr);
    const auto values = session->Run({{"x:0", Tensor::Scalar<float>(1)}}, {"sum:0"});
    ASSERT_TRUE(values.ok()) << values.status();
  };
  cycle();  // what the library keeps for the life of the process
  cycle();
  const int before = CountThreads();
  for (int i = 0; i < 20; ++i) cycle();
  // The library's own threads come and go by one or two; ours would show twenty times.
  EXPECT_LE(CountThreads(), before + 4);
}

TEST(ControlService, EndsAServerThatAcceptsIt) {
  auto accepting = StartServer(OneTask(), "worker", /*accept_shutdown=*/true);
  auto refusing = StartServer(OneTask(), "worker");
  testing::HealthWatch ending(testing::ChannelTo(accepting->address()), "");
  testing::HealthWatch staying(testing::ChannelTo(refusing->address()), "");
  EXPECT_EQ(ending.Next(), testing::kServing);
  EXPECT_EQ(staying.Next(), testing::kServing);
  EXPECT_EQ(RequestShutdown(refusing->address(), "done", Soon()).code(),
            StatusCode::kPermissionDenied);
  EXPECT_FALSE(refusing->WaitForShutdown(DeadlineAfter(milliseconds(20))));
  EXPECT_TRUE(RequestShutdown(accepting->address(), "done", Soon()).ok());
  EXPECT_TRUE(accepting->WaitForShutdown(Soon()));
  // It still answers, and says that nobody should begin anything here.
  EXPECT_EQ(ending.Next(), testing::kNotServing);
  EXPECT_EQ(staying.Next(milliseconds(20)), testing::kNothingNew);
  const auto status = GetControlStatus(accepting->address(), Soon());
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->task(), "/job:worker/replica:0/task:0");
  EXPECT_EQ(status->address(), accepting->address());
  EXPECT_EQ(status->device_size(), 1);
  EXPECT_TRUE(status->accepts_shutdown());
  const std::string gone = accepting->address();
  accepting.reset();
  const Status unreachable = RequestShutdown(gone, "done", Soon());
  EXPECT_EQ(unreachable.code(), StatusCode::kUnavailable);
  EXPECT_NE(Message(unreachable).find(gone), std::string_view::npos) << unreachable;
}

// Codes and texts that a stock client, or another task, sees.
class WireTest : public ::testing::Test {
 protected:
  std::unique_ptr<TaskServer> server_ = StartServer(OneTask(), "worker");

  Status Call(const char* method, const google::protobuf::MessageLite& request,
              google::protobuf::MessageLite* response, Deadline deadline = Soon()) {
    return CallRaw(server_->address(), method, request, response, deadline);
  }
  RendezvousKey OwnKey() {
    pb::GetStatusResponse status;
    EXPECT_TRUE(Call(methods::kWorkerGetStatus, pb::GetStatusRequest(), &status).ok());
    RendezvousKey key;
    key.src_device = key.dst_device = status.device_attributes(0).name();
    key.src_incarnation = status.device_attributes(0).incarnation();
    key.edge_name = "edge_1_a";
    return key;
  }
};

TEST_F(WireTest, UnknownSessionsAreAborted) {
  pb::RunStepRequest run;
  run.set_session_handle("00000000deadbeef");
  pb::RunStepResponse response;
  const Status status = Call(methods::kMasterRunStep, run, &response);
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_NE(Message(status).find("Session 00000000deadbeef is not found."), std::string_view::npos)
      << status;
  run.set_store_errors_in_response_body(true);
  ASSERT_TRUE(Call(methods::kMasterRunStep, run, &response).ok());
  EXPECT_EQ(response.status_code(), pb::error::ABORTED);
}

TEST_F(WireTest, AStaleGraphVersionIsAborted) {
  pb::CreateSessionResponse created;
  ASSERT_TRUE(Call(methods::kMasterCreateSession, pb::CreateSessionRequest(), &created).ok());
  pb::ExtendSessionRequest extend;
  extend.set_session_handle(created.session_handle());
  extend.set_current_graph_version(7);
  *extend.mutable_graph_def() = TestGraph().def();
  pb::ExtendSessionResponse response;
  const Status status = Call(methods::kMasterExtendSession, extend, &response);
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_NE(Message(status).find("Current version is 0 but caller expected 7."),
            std::string_view::npos)
      << status;
}

TEST_F(WireTest, UnknownWorkerSessionsAndGraphsAreAborted) {
  pb::RunGraphRequest run;
  run.set_graph_handle("00000000000000ff");
  pb::RunGraphResponse response;
  Status status = Call(methods::kWorkerRunGraph, run, &response);
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_NE(Message(status).find("Graph handle is not found: 00000000000000ff"),
            std::string_view::npos)
      << status;
  run.set_create_worker_session_called(true);
  run.set_session_handle("nobody");
  status = Call(methods::kWorkerRunGraph, run, &response);
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_NE(Message(status).find("Session handle is not found: nobody. Possibly this worker "
                                 "(\"/job:worker/replica:0/task:0\") just restarted."),
            std::string_view::npos)
      << status;
  EXPECT_TRUE(status.GetPayload(kWorkerRestartedPayload).has_value());
  run.set_store_errors_in_response_body(true);
  ASSERT_TRUE(Call(methods::kWorkerRunGraph, run, &response).ok());
  EXPECT_EQ(response.status_code(), pb::error::ABORTED);
}

TEST_F(WireTest, WorkerSessionsNeedAHandleAndMayBeDeletedTwice) {
  pb::CreateWorkerSessionResponse created;
  const Status status =
      Call(methods::kWorkerCreateWorkerSession, pb::CreateWorkerSessionRequest(), &created);
  EXPECT_EQ(status, errors::InvalidArgument("Session must be non-empty."));
  pb::DeleteWorkerSessionRequest remove;
  remove.set_session_handle("nobody");
  pb::DeleteWorkerSessionResponse removed;
  EXPECT_TRUE(Call(methods::kWorkerDeleteWorkerSession, remove, &removed).ok());
}

// A server on its own port, at which a worker session is opened, and asked for, by hand.
struct SessionsAt {
  std::string address;

  Status Create(const char* handle, const char* master, uint64_t incarnation) const {
    pb::CreateWorkerSessionRequest request;
    request.set_session_handle(handle);
    request.set_master_task(master);
    request.set_master_incarnation(static_cast<int64_t>(incarnation));
    pb::CreateWorkerSessionResponse response;
    return CallRaw(address, methods::kWorkerCreateWorkerSession, request, &response);
  }
  // What is wrong with a graph of the session tells whether there is a session.
  bool Has(const char* handle) const {
    pb::RunGraphRequest run;
    run.set_create_worker_session_called(true);
    run.set_session_handle(handle);
    run.set_graph_handle("00000000000000ff");
    pb::RunGraphResponse response;
    const Status status = CallRaw(address, methods::kWorkerRunGraph, run, &response);
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
    return Message(status).find("Graph handle is not found") != std::string_view::npos;
  }
  uint64_t Incarnation() const {
    pb::GetStatusResponse response;
    const Status status =
        CallRaw(address, methods::kWorkerGetStatus, pb::GetStatusRequest(), &response);
    EXPECT_TRUE(status.ok()) << status;
    return status.ok() ? response.device_attributes(0).incarnation() : 0;
  }
};

TEST(Sessions, OfAMasterThatRestartedAreDropped) {
  constexpr char kMaster[] = "/job:worker/replica:0/task:0";
  Pair pair;
  const SessionsAt ps{pair.ps->address()}, worker{pair.worker->address()};
  ASSERT_TRUE(ps.Create("first", kMaster, worker.Incarnation()).ok());
  ASSERT_TRUE(ps.Create("second", kMaster, worker.Incarnation()).ok());
  ASSERT_TRUE(ps.Create("of another", "/job:chief/replica:0/task:1", 1).ok());
  ASSERT_TRUE(ps.Create("of nobody", "", 0).ok());
  ASSERT_TRUE(pair.worker->Stop(SteadyClock::now()).ok());
  const std::string spec = StrCat("ps|", ps.address, ",worker|", worker.address);
  pair.worker = *MakeServer(*ClusterSpec::Parse(spec), "worker");
  ASSERT_TRUE(pair.worker->Start().ok());
  for (const char* handle : {"first", "second", "of another", "of nobody"}) {
    EXPECT_TRUE(ps.Has(handle)) << handle;
  }
  const Status created = ps.Create("new", kMaster, worker.Incarnation());
  ASSERT_TRUE(created.ok()) << created;
  EXPECT_FALSE(ps.Has("first"));
  EXPECT_FALSE(ps.Has("second"));
  for (const char* handle : {"of another", "of nobody", "new"}) {
    EXPECT_TRUE(ps.Has(handle)) << handle;
  }
}

TEST_F(WireTest, RequestsThatComeTwiceAreAborted) {
  pb::RunGraphRequest run;
  run.set_graph_handle("00000000000000ff");
  run.set_request_id(77);
  pb::RunGraphResponse response;
  EXPECT_NE(Message(Call(methods::kWorkerRunGraph, run, &response)).find("Graph handle"),
            std::string_view::npos);
  const Status again = Call(methods::kWorkerRunGraph, run, &response);
  EXPECT_EQ(again.code(), StatusCode::kAborted);
  EXPECT_NE(Message(again).find("77"), std::string_view::npos) << again;
}

TEST_F(WireTest, AReceiveOfAnotherIncarnationIsAborted) {
  RendezvousKey key = OwnKey();
  const uint64_t own = key.src_incarnation;
  key.src_incarnation = 5;
  pb::RecvTensorRequest request;
  request.set_rendezvous_key(key.ToString());
  pb::RecvTensorResponse response;
  const Status status = Call(methods::kWorkerRecvTensor, request, &response);
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_NE(Message(status).find(StrCat(
                "RecvTensor expects a different device incarnation: 5 vs. ", own,
                ". Your worker job (\"/job:worker/replica:0/task:0\") was probably restarted.")),
            std::string_view::npos)
      << status;
  EXPECT_TRUE(status.GetPayload(kWorkerRestartedPayload).has_value());
  request.set_rendezvous_key("nonsense");
  EXPECT_NE(
      Message(Call(methods::kWorkerRecvTensor, request, &response)).find("Invalid  rendezvous key"),
      std::string_view::npos);
}

TEST_F(WireTest, AnEarlyReceiveIsParkedUntilTheStepIsCleanedUp) {
  pb::RecvTensorRequest request;
  request.set_step_id(123);
  request.set_rendezvous_key(OwnKey().ToString());
  pb::RecvTensorResponse response;
  // Nobody sends: the caller's deadline ends the call, and nothing else.
  EXPECT_EQ(
      Call(methods::kWorkerRecvTensor, request, &response, DeadlineAfter(milliseconds(100))).code(),
      StatusCode::kDeadlineExceeded);
  Status parked;
  std::atomic<bool> ended{false};
  std::thread receiver([&] {
    parked = Call(methods::kWorkerRecvTensor, request, &response);
    ended = true;
  });
  pb::CleanupGraphRequest cleanup;
  cleanup.set_step_id(123);
  pb::CleanupGraphResponse cleaned;
  // A cleanup that came before the receive does not end it; a later one does.
  while (!ended) {
    EXPECT_TRUE(Call(methods::kWorkerCleanupGraph, cleanup, &cleaned).ok());
    std::this_thread::sleep_for(milliseconds(1));
  }
  receiver.join();
  EXPECT_EQ(parked.code(), StatusCode::kAborted) << parked;
  EXPECT_NE(Message(parked).find("Cleanup 123"), std::string_view::npos) << parked;
}

TEST_F(WireTest, StepSequencesStartSomewhereAndStay) {
  pb::GetStepSequenceRequest request;
  request.add_graph_key(4);
  pb::GetStepSequenceResponse first, second;
  ASSERT_TRUE(Call(methods::kWorkerGetStepSequence, request, &first).ok());
  ASSERT_TRUE(Call(methods::kWorkerGetStepSequence, request, &second).ok());
  ASSERT_EQ(first.step_sequence_size(), 1);
  EXPECT_EQ(first.step_sequence(0).graph_key(), 4);
  EXPECT_EQ(first.step_sequence(0).next_step_id(), second.step_sequence(0).next_step_id());
}

TEST_F(WireTest, WhatIsNotServedSaysSo) {
  pb::LoggingResponse logging;
  EXPECT_TRUE(Call(methods::kWorkerLogging, pb::LoggingRequest(), &logging).ok());
  pb::MarkRecvFinishedResponse marked;
  EXPECT_TRUE(Call(methods::kWorkerMarkRecvFinished, pb::MarkRecvFinishedRequest(), &marked).ok());
  pb::TracingResponse tracing;
  const Status refused = Call(methods::kWorkerTracing, pb::TracingRequest(), &tracing);
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented) << refused;
  EXPECT_NE(Message(refused).find("RunOptions.trace_level"), std::string_view::npos) << refused;
}

TEST_F(WireTest, AGroupOfOneIsCompleteAtOnce) {
  pb::CompleteGroupRequest request;
  pb::CompleteGroupResponse group;
  EXPECT_EQ(Call(methods::kWorkerCompleteGroup, request, &group).code(), StatusCode::kInternal);
  request.set_group_key(3);
  request.set_group_size(1);
  request.set_device_type("CPU");
  pb::DeviceAttributes* const device = request.mutable_device_attributes();
  device->set_name("/job:worker/replica:0/task:7/device:CPU:0");
  device->set_device_type("CPU");
  device->set_incarnation(11);
  ASSERT_TRUE(Call(methods::kWorkerCompleteGroup, request, &group).ok());
  EXPECT_EQ(group.group_key(), 3);
  EXPECT_EQ(group.num_tasks(), 1);
  ASSERT_EQ(group.device_attributes_size(), 1);
  EXPECT_EQ(group.device_attributes(0).incarnation(), 11);
  // TensorFlow's servers do not say which step they are in: then nobody in the group may.
  EXPECT_FALSE(group.tells_steps());
  request.set_group_key(5);
  request.set_tells_steps(true);
  ASSERT_TRUE(Call(methods::kWorkerCompleteGroup, request, &group).ok());
  EXPECT_TRUE(group.tells_steps());
  device->set_name("not a device");
  request.set_group_key(4);
  EXPECT_EQ(Call(methods::kWorkerCompleteGroup, request, &group).code(),
            StatusCode::kInvalidArgument);

  pb::CompleteInstanceRequest instance;
  pb::CompleteInstanceResponse complete;
  instance.set_group_key(8);
  EXPECT_EQ(Call(methods::kWorkerCompleteInstance, instance, &complete).code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(WireTest, BuffersAreAskedForByTheDevicesIncarnation) {
  pb::RecvBufRequest request;
  request.set_src_device("/job:worker/replica:0/task:0/device:CPU:0");
  request.set_src_incarnation(1);
  pb::RecvBufResponse response;
  const Status status = Call(methods::kWorkerRecvBuf, request, &response);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_NE(Message(status).find("probably restarted"), std::string_view::npos);
}

}  // namespace
}  // namespace millrace
