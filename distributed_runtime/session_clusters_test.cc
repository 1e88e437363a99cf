// SPDX-License-Identifier: Apache-2.0
// Sessions whose clients bring a cluster_def: what they can do, what they are refused, and that
// nothing of them stays.
#include "distributed_runtime/session_clusters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "distributed_runtime/stub/remote_master.h"
#include "distributed_runtime/task_server.h"
#include "distributed_runtime/test_engine.h"
#include "proto/worker.pb.h"
#include "session/client_session.h"
#include "tests/cluster/certificate_files.h"
#include "tests/cluster/free_ports.h"
#include "transport/grpc/client_pool.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/methods.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

using Place = std::pair<std::string, std::string>;  // job, address; tasks in their order

Deadline Soon() { return DeadlineAfter(seconds(60)); }

TaskServerOptions Options(const std::string& cluster = "localhost|127.0.0.1:0",
                          const std::string& job = "localhost") {
  TaskServerOptions options;
  options.server.cluster = *ClusterSpec::Parse(cluster);
  options.server.job_name = job;
  options.server.inter_op_threads = 2;
  options.server.intra_op_threads = 1;
  options.ops = &TheTestEngine().ops;
  options.kernels = &TheTestEngine().kernels;
  return options;
}

std::unique_ptr<TaskServer> Start(const TaskServerOptions& options = Options()) {
  StatusOr<std::unique_ptr<TaskServer>> server = TaskServer::Create(options);
  EXPECT_TRUE(server.ok()) << server.status();
  const Status started = (*server)->Start();
  EXPECT_TRUE(started.ok()) << started;
  return *std::move(server);
}

pb::ClusterDef ClusterOf(const std::vector<Place>& places) {
  pb::ClusterDef cluster;
  for (const auto& [name, address] : places) {
    pb::JobDef* job = nullptr;
    for (pb::JobDef& known : *cluster.mutable_job()) {
      if (known.name() == name) job = &known;
    }
    if (job == nullptr) job = cluster.add_job();
    job->set_name(name);
    (*job->mutable_tasks())[static_cast<int>(job->tasks_size())] = address;
  }
  return cluster;
}

ClientSession::Options Bringing(const pb::ClusterDef& cluster, bool share_state = false) {
  ClientSession::Options options;
  options.start_timeout = seconds(60);
  *options.config.mutable_cluster_def() = cluster;
  options.config.mutable_experimental()->set_share_session_state_in_clusterspec_propagation(
      share_state);
  return options;
}

StatusOr<std::unique_ptr<ClientSession>> TryOpen(const TaskServer& master,
                                                 const pb::GraphDef& graph,
                                                 const ClientSession::Options& options) {
  return ClientSession::Create(*ConnectToMaster(master.target()), graph, options);
}

std::unique_ptr<ClientSession> Open(const TaskServer& master, const pb::GraphDef& graph,
                                    const ClientSession::Options& options) {
  auto session = TryOpen(master, graph, options);
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

float FetchFloat(ClientSession* session, const std::string& name,
                 std::initializer_list<std::pair<std::string, Tensor>> feeds = {}) {
  const auto values = session->Run(feeds, {name});
  EXPECT_TRUE(values.ok()) << values.status();
  return values.ok() ? (*values)[0].scalar<float>() : -1;
}

Status CallWorker(const TaskServer& server, const char* method,
                  const google::protobuf::MessageLite& request,
                  google::protobuf::MessageLite* response) {
  RpcChannel channel(server.address(), server.address(), ClientPool());
  Notification done;
  Status result;
  channel.Call(method, {Soon(), nullptr}, ToByteBuffer(request), RpcChannel::IfDown::kFail,
               [&](Status status, const grpc::ByteBuffer& bytes) {
                 if (status.ok()) status = ReceivedBytes(bytes).Parse(response);
                 result = std::move(status);
                 done.Notify();
               });
  done.Wait();
  return result;
}

// A session at a worker, as a master would open it.
Status OpenAtWorker(const TaskServer& server, const std::string& handle,
                    const pb::ClusterDef& cluster, const std::string& job, int task,
                    const std::string& master, int64_t incarnation = 12345) {
  pb::CreateWorkerSessionRequest request;
  request.set_session_handle(handle);
  request.set_isolate_session_state(true);
  request.set_master_task(master);
  request.set_master_incarnation(incarnation);
  *request.mutable_server_def()->mutable_cluster() = cluster;
  request.mutable_server_def()->set_job_name(job);
  request.mutable_server_def()->set_task_index(task);
  request.mutable_server_def()->set_protocol("grpc");
  pb::CreateWorkerSessionResponse response;
  return CallWorker(server, methods::kWorkerCreateWorkerSession, request, &response);
}

bool SessionIsGone(const TaskServer& server, const std::string& handle) {
  pb::DeregisterGraphRequest request;
  request.set_session_handle(handle);
  request.set_create_worker_session_called(true);
  request.set_graph_handle("none");
  pb::DeregisterGraphResponse response;
  const Status status = CallWorker(server, methods::kWorkerDeregisterGraph, request, &response);
  EXPECT_TRUE(errors::IsAborted(status)) << status;
  return std::string(Message(status)).find("Session handle is not found") != std::string::npos;
}

bool WaitUntilGone(const TaskServer& server, const std::string& handle) {
  const Deadline limit = Soon();
  while (!SessionIsGone(server, handle)) {
    if (SteadyClock::now() > limit) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

// b = (a at task 0) + (x, fed, at task 1); c = b + b at task 0.
TestGraph SumOver(const std::string& job) {
  const std::string first = StrCat("/job:", job, "/task:0"),
                    second = StrCat("/job:", job, "/task:1");
  TestGraph graph;
  graph.Const("a", 2, first);
  graph.Placeholder("x")->set_device(second);
  graph.Sum("b", "a", "x", second);
  graph.Sum("c", "b", "b", first);
  return graph;
}

TEST(SessionClusters, StepsRunOnTheTasksThatTheClientNames) {
  const auto one = Start(), two = Start();
  const pb::ClusterDef cluster = ClusterOf({{"w", one->address()}, {"w", two->address()}});
  const std::shared_ptr<MasterInterface> masters[] = {
      *ConnectToMaster(one->target()), NewGrpcRemoteMaster(one->address(), ClientPool()),
      NewGrpcRemoteMaster(two->address(), ClientPool())};
  for (const auto& master : masters) {
    const auto session = ClientSession::Create(master, SumOver("w").def(), Bringing(cluster));
    ASSERT_TRUE(session.ok()) << session.status();
    const auto devices = (*session)->ListDevices();
    ASSERT_TRUE(devices.ok()) << devices.status();
    std::vector<std::string> names;
    for (const auto& device : devices->local_devices) {
      names.push_back(device.name());
      EXPECT_NE(device.incarnation(), 0);
    }
    EXPECT_THAT(names, ::testing::UnorderedElementsAre("/job:w/replica:0/task:0/device:CPU:0",
                                                       "/job:w/replica:0/task:1/device:CPU:0"));
    for (int i = 0; i < 5; ++i) {
      const auto values =
          (*session)->Run({{"x:0", Tensor::Scalar<float>(static_cast<float>(i))}}, {"c", "b"});
      ASSERT_TRUE(values.ok()) << values.status();
      EXPECT_EQ((*values)[0].scalar<float>(), 2.0f * (2.0f + static_cast<float>(i)));
    }
  }
}

TEST(SessionClusters, ValuesGoBetweenTwoWorkersThatAreNotTheMaster) {
  const auto one = Start(), two = Start(), three = Start();
  // Jobs that no server was started with, and the master is the last task of its job.
  const pb::ClusterDef cluster =
      ClusterOf({{"data", one->address()}, {"w", two->address()}, {"w", three->address()}});
  TestGraph graph;
  graph.Const("a", 3, "/job:data/task:0");
  graph.Sum("b", "a", "a", "/job:w/task:0");
  graph.Sum("c", "b", "a", "/job:data/task:0");
  graph.Identity("d", "c", "/job:w/task:1");
  const auto session = Open(*three, graph.def(), Bringing(cluster));
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(FetchFloat(session.get(), "d"), 9);
}

TEST(SessionClusters, TwoSessionsOfOneMasterHaveDifferentTasksOfOneName) {
  const auto one = Start(), two = Start(), three = Start();
  TestGraph graph;
  graph.Counter("n", "/job:w/task:1");
  const auto first = Open(
      *two, graph.def(), Bringing(ClusterOf({{"w", two->address()}, {"w", one->address()}}), true));
  const auto second =
      Open(*two, graph.def(),
           Bringing(ClusterOf({{"w", two->address()}, {"w", three->address()}}), true));
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(FetchFloat(first.get(), "n"), 1);
  EXPECT_EQ(FetchFloat(first.get(), "n"), 2);
  EXPECT_EQ(FetchFloat(second.get(), "n"), 1);
}

TEST(SessionClusters, TasksOfTheServersOwnClusterMayHaveOtherNames) {
  const std::vector<int> ports = testing::FreePorts(3);
  const std::string spec = StrCat("ps|127.0.0.1:", ports[0], ",worker|127.0.0.1:", ports[1],
                                  ",idle|127.0.0.1:", ports[2]);
  const auto ps = Start(Options(spec, "ps")), worker = Start(Options(spec, "worker"));
  // The third one was never started: this cluster has fewer jobs.
  const pb::ClusterDef cluster = ClusterOf({{"w", worker->address()}, {"w", ps->address()}});
  const auto brought = Open(*worker, SumOver("w").def(), Bringing(cluster));
  ASSERT_NE(brought, nullptr);
  const auto values = brought->Run({{"x:0", Tensor::Scalar<float>(1)}}, {"c"});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[0].scalar<float>(), 6);
  // Its names are not those of other sessions.
  ClientSession::Options own;
  own.config.add_device_filters("/job:worker");
  const auto refused = TryOpen(*worker, SumOver("w").def(), own);
  EXPECT_TRUE(errors::IsInvalidArgument(refused.status())) << refused.status();
}

TEST(SessionClusters, ANameOfAnotherTaskOfTheServersClusterMeansTheBroughtOne) {
  const std::vector<int> ports = testing::FreePorts(2);
  const std::string spec = StrCat("ps|127.0.0.1:", ports[0], ",worker|127.0.0.1:", ports[1]);
  const auto ps = Start(Options(spec, "ps")), worker = Start(Options(spec, "worker"));
  // The two have changed their names.
  const pb::ClusterDef cluster = ClusterOf({{"ps", worker->address()}, {"worker", ps->address()}});
  TestGraph graph;
  graph.Const("a", 2, "/job:ps");
  graph.Sum("b", "a", "a", "/job:worker");
  graph.Identity("c", "b", "/job:ps");
  const auto session = Open(*worker, graph.def(), Bringing(cluster));
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(FetchFloat(session.get(), "c"), 4);
}

TEST(SessionClusters, StateIsTheSessionsOwnUnlessItIsToBeShared) {
  const auto server = Start();
  const pb::ClusterDef cluster = ClusterOf({{"w", server->address()}});
  TestGraph graph;
  graph.Counter("n");
  for (const bool shared : {false, true}) {
    const auto first = Open(*server, graph.def(), Bringing(cluster, shared));
    auto second = Open(*server, graph.def(), Bringing(cluster, shared));
    ASSERT_TRUE(first != nullptr && second != nullptr);
    EXPECT_EQ(FetchFloat(first.get(), "n"), 1);
    EXPECT_EQ(FetchFloat(second.get(), "n"), shared ? 2 : 1);
    second = nullptr;
    EXPECT_EQ(FetchFloat(first.get(), "n"), shared ? 3 : 2);
    const auto third = Open(*server, graph.def(), Bringing(cluster, shared));
    ASSERT_NE(third, nullptr);
    EXPECT_EQ(FetchFloat(third.get(), "n"), shared ? 4 : 1);
  }
  // What they share is what sessions without a cluster have.
  const auto usual = Open(*server, graph.def(), {});
  ASSERT_NE(usual, nullptr);
  EXPECT_EQ(FetchFloat(usual.get(), "n"), 5);
}

TEST(SessionClusters, PartialRunsGoOverItsTasks) {
  const auto one = Start(), two = Start();
  const auto session = Open(*one, SumOver("w").def(),
                            Bringing(ClusterOf({{"w", one->address()}, {"w", two->address()}})));
  ASSERT_NE(session, nullptr);
  const auto run = session->PartialRunSetup({"x:0"}, {"a:0", "c:0"}, {});
  ASSERT_TRUE(run.ok()) << run.status();
  const auto before = session->PartialRun(*run, {}, {"a:0"});
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ((*before)[0].scalar<float>(), 2);
  const auto after = session->PartialRun(*run, {{"x:0", Tensor::Scalar<float>(1)}}, {"c:0"});
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ((*after)[0].scalar<float>(), 6);
}

TEST(SessionClusters, AMasterAtANewAddressTakesThePlaceOfTheOldOne) {
  const auto old_master = Start(), new_master = Start(), worker = Start();
  const auto cluster = [&](const TaskServer& master) {
    return ClusterOf({{"master", master.address()}, {"worker", worker->address()}});
  };
  TestGraph graph;
  graph.Const("a", 1, "/job:worker");
  graph.Sum("b", "a", "a", "/job:worker");
  const auto old_session = Open(*old_master, graph.def(), Bringing(cluster(*old_master)));
  const auto new_session = Open(*new_master, graph.def(), Bringing(cluster(*new_master)));
  ASSERT_TRUE(old_session != nullptr && new_session != nullptr);
  EXPECT_EQ(FetchFloat(new_session.get(), "b"), 2);
  const auto lost = old_session->Run({}, {"b"});
  EXPECT_TRUE(errors::IsAborted(lost.status())) << lost.status();
  EXPECT_THAT(std::string(Message(lost.status())), HasSubstr("Session handle is not found"));
}

// Of the server's own cluster, without a cluster_def, and of a brought one: one does not end the
// other, whatever their masters are called.
TEST(SessionClusters, SessionsOfAMasterOfTheSameNameWithoutAClusterStay) {
  const auto one = Start(), two = Start();
  pb::CreateWorkerSessionRequest request;
  request.set_session_handle("usual");
  request.set_master_task("/job:w/replica:0/task:0");
  request.set_master_incarnation(1);
  pb::CreateWorkerSessionResponse response;
  ASSERT_TRUE(CallWorker(*two, methods::kWorkerCreateWorkerSession, request, &response).ok());
  const auto session = Open(*one, SumOver("w").def(),
                            Bringing(ClusterOf({{"w", one->address()}, {"w", two->address()}})));
  ASSERT_NE(session, nullptr);
  EXPECT_FALSE(SessionIsGone(*two, "usual"));
}

TEST(SessionClusters, ClustersThatAreNoneAreRefused) {
  const auto server = Start();
  const std::string own = server->address();
  const std::string port = own.substr(own.rfind(':'));
  pb::ClusterDef twice = ClusterOf({{"w", own}});
  *twice.add_job() = ClusterOf({{"w", "127.0.0.1:1"}}).job(0);
  pb::ClusterDef negative = ClusterOf({{"w", own}});
  (*negative.mutable_job(0)->mutable_tasks())[-1] = "127.0.0.1:1";
  pb::ClusterDef many = ClusterOf({{"w", own}});
  for (int i = 1; i <= ServerSessionClusters::kMostTasks; ++i) {
    (*many.mutable_job(0)->mutable_tasks())[i] = StrCat("127.0.0.1:", i);
  }
  const struct {
    pb::ClusterDef cluster;
    const char* says;
    bool is_denied = false;
  } cases[] = {
      {ClusterOf({{"w", "127.0.0.1:1"}}),
       "The master (current machine) is not included in the provided cluster_def."},
      {ClusterOf({{"localhost", own}}),
       "The ClusterSpec names the job and task index to be the same names that were provided when "
       "the server booted. This is currently not allowed. Job: localhost, task index: 0"},
      {ClusterOf({{"w", own}, {"x", "localhost" + port}, {"y", "127.0.0.2" + port}}),
       "Found multiple matching tasks that correspond to to the master."},
      {ClusterOf({{"w", own}, {"x", own}}), "is given to two tasks"},
      {ClusterOf({{"w", own}, {"w", "127.0.0.1:0"}}), "no port"},
      {ClusterOf({{"w", own}, {"w", "127.0.0.1"}}), "not of the form host:port"},
      {ClusterOf({{"w", own}, {"w", "127.0.0.1:70000"}}), "port"},
      {ClusterOf({{"w", own}, {"w", "a/b:1"}}), "malformed host"},
      {ClusterOf({{"w", own}, {"../x", "127.0.0.1:1"}}), "not a job name"},
      {ClusterOf({{"w", own}, {"", "127.0.0.1:1"}}), "not a job name"},
      {ClusterOf({{"w", own}, {"w", std::string(5000, 'x') + ":80"}}), "x... (5003 characters)"},
      {ClusterOf({{"w", own}, {std::string(5000, 'x'), own}}), "x... (5000 characters)"},
      {twice, "twice"},
      {negative, "negative"},
      {many, "more than 1024 tasks"},
      {ClusterOf({{"w", own}, {"w", "10.1.2.3:80"}}),
       "a session brings /job:w/replica:0/task:1 at 10.1.2.3:80, which is no address of the "
       "cluster of /job:localhost/replica:0/task:0, nor on this machine",
       true},
      {ClusterOf({{"w", own}, {"w", "127.example.com:80"}}), "nor on this machine", true},
  };
  for (const auto& c : cases) {
    const auto session = TryOpen(*server, TestGraph().def(), Bringing(c.cluster));
    EXPECT_EQ(c.is_denied, errors::IsPermissionDenied(session.status())) << session.status();
    EXPECT_EQ(!c.is_denied, errors::IsInvalidArgument(session.status())) << session.status();
    EXPECT_THAT(std::string(Message(session.status())), HasSubstr(c.says));
    EXPECT_LT(Message(session.status()).size(), 1000u);
  }
}

TEST(SessionClusters, AWorkerLooksAtTheClusterItself) {
  const auto server = Start();
  const std::string own = server->address();
  const std::string master = "/job:m/replica:0/task:0";
  const struct {
    pb::ClusterDef cluster;
    std::string job;
    int task;
    std::string master;
    const char* says;
    bool is_denied = false;
  } cases[] = {
      {ClusterOf({{"m", "127.0.0.1:1"}, {"w", own}}), "m", 0, master, "differs from expected port"},
      {ClusterOf({{"m", "127.0.0.1:1"}, {"w", own}}), "w", 1, master, "was not defined"},
      {ClusterOf({{"m", "127.0.0.1:1"}, {"w", own}}), "x", 0, master, "was not defined"},
      {ClusterOf({{"w", own}}), "w", 0, master, "has no such task"},
      {ClusterOf({{"w", own}}), "w", 0, "", "has no such task"},
      {ClusterOf({{"m", "127.0.0.1:0"}, {"w", own}}), "w", 0, master, "no port"},
      {ClusterOf({{"m", "192.168.1.1:5"}, {"w", own}}), "w", 0, master, "192.168.1.1:5", true},
  };
  for (const auto& c : cases) {
    const Status status = OpenAtWorker(*server, "bad", c.cluster, c.job, c.task, c.master);
    EXPECT_EQ(c.is_denied, errors::IsPermissionDenied(status)) << status;
    EXPECT_EQ(!c.is_denied, errors::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(c.says));
    EXPECT_TRUE(SessionIsGone(*server, "bad"));
  }
}

TEST(SessionClusters, ATaskThatDoesNotAnswerIsNamedWithItsAddress) {
  const std::vector<int> ports = testing::FreePorts(1);
  const auto server = Start();
  const std::string nobody = StrCat("127.0.0.1:", ports[0]);
  ClientSession::Options options = Bringing(ClusterOf({{"w", server->address()}, {"w", nobody}}));
  options.start_timeout = milliseconds(300);
  const auto session = TryOpen(*server, TestGraph().def(), options);
  EXPECT_TRUE(errors::IsDeadlineExceeded(session.status())) << session.status();
  EXPECT_THAT(std::string(Message(session.status())),
              HasSubstr(StrCat("/job:w/replica:0/task:1 at ", nobody)));
}

TEST(SessionClusters, OneServerUnderTwoAddressesIsNotTwoTasks) {
  const auto one = Start(), two = Start();
  const std::string port = two->address().substr(two->address().rfind(':'));
  const auto session = TryOpen(
      *one, TestGraph().def(),
      Bringing(
          ClusterOf({{"w", one->address()}, {"w", two->address()}, {"w", "localhost" + port}})));
  EXPECT_TRUE(errors::IsAlreadyExists(session.status())) << session.status();
}

// As many as could be open at once, and some more, one after the other.
TEST(SessionClusters, ASessionThatIsClosedGivesEverythingBack) {
  const auto one = Start(), two = Start();
  const pb::ClusterDef alone = ClusterOf({{"w", one->address()}});
  const pb::ClusterDef both = ClusterOf({{"w", one->address()}, {"w", two->address()}});
  TestGraph graph;
  graph.Const("a", 2, "/job:w/task:0");
  for (std::size_t i = 0; i < ServerSessionClusters::kMostOpen / 2 + 10; ++i) {
    const bool wide = i % 16 == 0;
    const auto session = Open(*one, wide ? SumOver("w").def() : graph.def(),
                              Bringing(wide ? both : alone, /*share_state=*/i % 2 == 0));
    ASSERT_NE(session, nullptr) << i;
    if (i % 8 == 0) {
      const auto values =
          wide ? session->Run({{"x:0", Tensor::Scalar<float>(1)}}, {"c"}) : session->Run({}, {"a"});
      ASSERT_TRUE(values.ok()) << values.status();
    }
  }
  // And those that were never opened: the second task already has a session of that name.
  const std::string port = two->address().substr(two->address().rfind(':'));
  const pb::ClusterDef broken =
      ClusterOf({{"w", one->address()}, {"w", two->address()}, {"w", "localhost" + port}});
  for (int i = 0; i < 40; ++i) {
    const Status refused = TryOpen(*one, TestGraph().def(), Bringing(broken)).status();
    EXPECT_TRUE(errors::IsAlreadyExists(refused)) << refused;
    EXPECT_THAT(std::string(Message(refused)), HasSubstr("one server for two of its tasks"));
  }
  EXPECT_NE(Open(*one, SumOver("w").def(), Bringing(both)), nullptr);
}

TEST(SessionClusters, NamesUnderWhichStateIsSharedAreBounded) {
  const auto server = Start();
  for (std::size_t i = 0; i <= ServerSessionClusters::kMostNames; ++i) {
    const auto session =
        TryOpen(*server, TestGraph().def(),
                Bringing(ClusterOf({{StrCat("w", i), server->address()}}), /*share_state=*/true));
    if (i < ServerSessionClusters::kMostNames) {
      ASSERT_TRUE(session.ok()) << session.status();
    } else {
      EXPECT_TRUE(errors::IsResourceExhausted(session.status())) << session.status();
    }
  }
}

TEST(SessionClusters, SessionsOfMastersThatAreGoneAreClosed) {
  TaskServerOptions options = Options();
  options.server.peer_timeout = milliseconds(200);
  const auto server = Start(options);
  // Nobody listens at port 1.
  const pb::ClusterDef cluster = ClusterOf({{"m", "127.0.0.1:1"}, {"w", server->address()}});
  ASSERT_TRUE(OpenAtWorker(*server, "dead", cluster, "w", 0, "/job:m/replica:0/task:0").ok());
  EXPECT_TRUE(WaitUntilGone(*server, "dead"));
}

TEST(SessionClusters, SessionsOfMastersThatRestartedAreClosedWithoutANewOne) {
  TaskServerOptions options = Options();
  options.server.peer_timeout = seconds(10);  // asked every 2 s; silence is not why
  const auto server = Start(options), other = Start();
  pb::GetStatusResponse status;
  ASSERT_TRUE(CallWorker(*other, methods::kWorkerGetStatus, pb::GetStatusRequest(), &status).ok());
  const auto incarnation = static_cast<int64_t>(status.device_attributes(0).incarnation());
  // Both at the same address, of which the first process is not there any more.
  const pb::ClusterDef before = ClusterOf({{"m", other->address()}, {"w", server->address()}});
  const pb::ClusterDef now = ClusterOf({{"n", other->address()}, {"w", server->address()}});
  ASSERT_TRUE(
      OpenAtWorker(*server, "now", now, "w", 0, "/job:n/replica:0/task:0", incarnation).ok());
  ASSERT_TRUE(
      OpenAtWorker(*server, "before", before, "w", 0, "/job:m/replica:0/task:0", 12345).ok());
  EXPECT_TRUE(WaitUntilGone(*server, "before"));
  EXPECT_FALSE(SessionIsGone(*server, "now"));
}

TEST(SessionClusters, AStepEndsWithItsWorker) {
  const auto master = Start();
  auto worker = Start();
  TestGraph graph;
  graph.Block("b", "/job:w/task:1");
  const auto session =
      Open(*master, graph.def(),
           Bringing(ClusterOf({{"w", master->address()}, {"w", worker->address()}})));
  ASSERT_NE(session, nullptr);
  Status ran;
  std::thread step([&] { ran = session->Run({}, {"b"}).status(); });
  EXPECT_TRUE(WaitUntilOpsBlock(1));
  ASSERT_TRUE(worker->Stop(SteadyClock::now()).ok());
  step.join();
  EXPECT_FALSE(ran.ok());
}

TEST(SessionClusters, AServerStopsInTheMiddleOfAStep) {
  auto master = Start();
  const auto worker = Start();
  TestGraph graph;
  graph.Block("b", "/job:w/task:1");
  graph.Identity("c", "b", "/job:w/task:0");
  const auto session =
      Open(*master, graph.def(),
           Bringing(ClusterOf({{"w", master->address()}, {"w", worker->address()}})));
  ASSERT_NE(session, nullptr);
  Status ran;
  std::thread step([&] { ran = session->Run({}, {"c"}).status(); });
  EXPECT_TRUE(WaitUntilOpsBlock(1));
  ASSERT_TRUE(master->Stop(SteadyClock::now()).ok());
  step.join();
  EXPECT_FALSE(ran.ok());
  EXPECT_TRUE(WaitUntilOpsBlock(0));
}

TEST(SessionClusters, OtherHostsAreCalledOnlyWhereThatIsAllowed) {
  TaskServerOptions options = Options();
  options.server.allow = {"network"};
  ClientSession::Options elsewhere;
  for (const bool allowed : {true, false}) {
    if (!allowed) options.server.allow = {"file_read"};
    const auto server = Start(options);
    // An address of documents, which nobody has: asked in vain, or not asked at all.
    elsewhere = Bringing(ClusterOf({{"w", server->address()}, {"w", "192.0.2.1:1"}}));
    elsewhere.start_timeout = milliseconds(300);
    const auto session = TryOpen(*server, TestGraph().def(), elsewhere);
    EXPECT_EQ(allowed, errors::IsDeadlineExceeded(session.status())) << session.status();
    EXPECT_EQ(!allowed, errors::IsPermissionDenied(session.status())) << session.status();
  }
}

// With credentials, which only tasks of the servers' cluster are shown.
class SecretClusters : public ::testing::TestWithParam<bool> {
 protected:
  SecretClusters() {
    const std::vector<int> ports = testing::FreePorts(2);
    const std::string spec = StrCat("ps|127.0.0.1:", ports[0], ",worker|127.0.0.1:", ports[1]);
    const std::string token = GetParam() ? "" : files_.Token("the-token-of-this-cluster");
    for (const char* job : {"ps", "worker"}) {
      TaskServerOptions options = Options(spec, job);
      options.server.credentials =
          GetParam() ? files_.Issue(files_.Task(job, 0)) : Credentials{.token_file = token};
      (job[0] == 'p' ? ps_ : worker_) = Start(options);
    }
    client_ = GetParam() ? files_.Issue(files_.Client()) : Credentials{.token_file = token};
  }

  StatusOr<std::unique_ptr<ClientSession>> TryBring(const pb::ClusterDef& cluster) {
    return ClientSession::Create(
        NewGrpcRemoteMaster(worker_->address(), ClientPool(), *LoadedCredentials::Load(client_)),
        SumOver("w").def(), Bringing(cluster));
  }

  testing::CertificateFiles files_;
  std::unique_ptr<TaskServer> ps_, worker_;
  Credentials client_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, SecretClusters, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Tls" : "Token"; });

TEST_P(SecretClusters, TheServersTasksMayHaveOtherNames) {
  const std::string ps = ps_->address();
  for (const std::string& spelt : {ps, "localhost" + ps.substr(ps.rfind(':'))}) {
    const auto session = TryBring(ClusterOf({{"w", worker_->address()}, {"w", spelt}}));
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ(FetchFloat(session->get(), "c", {{"x:0", Tensor::Scalar<float>(1)}}), 6);
  }
}

TEST_P(SecretClusters, NobodyElseIsCalled) {
  const auto stranger = Start();
  const auto session = TryBring(ClusterOf({{"w", worker_->address()}, {"w", stranger->address()}}));
  EXPECT_TRUE(errors::IsPermissionDenied(session.status())) << session.status();
  EXPECT_THAT(std::string(Message(session.status())), HasSubstr(stranger->address()));
}

}  // namespace
}  // namespace millrace
