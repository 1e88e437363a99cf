// SPDX-License-Identifier: Apache-2.0
// The way from a client's error to the servers' logs.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/calls/request_text.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/notification.h"
#include "base/strings.h"
#include "distributed_runtime/stub/remote_master.h"
#include "distributed_runtime/task_server.h"
#include "distributed_runtime/test_engine.h"
#include "proto/master.pb.h"
#include "proto/worker.pb.h"
#include "session/client_session.h"
#include "tests/cluster/free_ports.h"
#include "transport/grpc/client_pool.h"
#include "transport/grpc/grpc_util.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/methods.h"

namespace millrace {
namespace {

class LogKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext&) override {
    MR_LOG(kWarning, "a kernel says so");
    return OkStatus();
  }
};

// With a kernel that logs.
const TestEngine& Engine() {
  static const auto* const engine = [] {
    auto* const made = new TestEngine;
    made->kernels.Register(KernelDef("PrintV2"), MakeKernel<LogKernel>);
    return made;
  }();
  return *engine;
}

std::unique_ptr<TaskServer> MakeServer(const ClusterSpec& spec, const std::string& job) {
  const TestEngine& engine = Engine();
  TaskServerOptions options;
  options.server.cluster = spec;
  options.server.job_name = job;
  options.ops = &engine.ops;
  options.kernels = &engine.kernels;
  StatusOr<std::unique_ptr<TaskServer>> server = TaskServer::Create(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

// "read" reads a file that is not there, on `device`.
TestGraph ReadsNoFile(const std::string& device = "") {
  TestGraph graph;
  pb::NodeDef* const path = graph.Add("path", "Const");
  path->set_device(device);
  (*path->mutable_attr())["dtype"].set_type(pb::DT_STRING);
  pb::TensorProto& value = *(*path->mutable_attr())["value"].mutable_tensor();
  value.set_dtype(pb::DT_STRING);
  value.mutable_tensor_shape();
  value.add_string_val("/there/is/no/such/file");
  graph.Add("read", "ReadFile", {"path"})->set_device(device);
  return graph;
}

// " [request 0123456789abcdef]" of an error; "" without one.
std::string NameIn(const Status& status) {
  const std::string text(status.message());
  const std::size_t at = text.rfind(" [request ");
  if (at == std::string::npos) return "";
  const std::string name = text.substr(at, text.find(']', at) + 1 - at);
  EXPECT_EQ(name.size(), std::string(" [request 0123456789abcdef]").size()) << text;
  EXPECT_EQ(text.find(" [request "), at) << "named twice: " << text;
  return name;
}

// Fails, and what the servers of this process say meanwhile.
struct Failing {
  explicit Failing(const std::function<Status()>& call) {
    ::testing::internal::CaptureStderr();
    status = call();
    log = ::testing::internal::GetCapturedStderr();
    name = NameIn(status);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(name, "") << status;
  }
  // Whether the log has that of this request.
  bool Logged(const std::string& method) const {
    for (const std::string_view line : StrSplit(log, '\n')) {
      if (line.find(method + " of session ") != std::string_view::npos &&
          line.find("failed" + name + ": ") != std::string_view::npos) {
        return true;
      }
    }
    return false;
  }

  Status status;
  std::string log, name;
};

class RequestIdsTest : public ::testing::Test {
 protected:
  RequestIdsTest() : server_(MakeServer(*ClusterSpec::Parse("worker|127.0.0.1:0"), "worker")) {
    EXPECT_TRUE(server_->Start().ok());
  }

  std::shared_ptr<MasterInterface> Master() const {
    return NewGrpcRemoteMaster(server_->address(), ClientPool());
  }

  template <typename Request, typename Response>
  Status Call(const char* method, const Request& request, Response* response) const {
    RpcChannel channel(server_->address(), server_->address(), ClientPool());
    Notification done;
    Status result;
    channel.Call(method, {DeadlineAfter(std::chrono::seconds(60)), nullptr}, ToByteBuffer(request),
                 RpcChannel::IfDown::kFail, [&](Status status, const grpc::ByteBuffer& bytes) {
                   if (status.ok()) status = ReceivedBytes(bytes).Parse(response);
                   result = std::move(status);
                   done.Notify();
                 });
    done.Wait();
    return result;
  }

  const std::unique_ptr<TaskServer> server_;
};

TEST_F(RequestIdsTest, TheErrorOfAStepIsFoundInTheLogOfTheServer) {
  auto session = ClientSession::Create(Master(), ReadsNoFile().def(), {});
  ASSERT_TRUE(session.ok()) << session.status();
  std::string last;
  for (int step = 0; step < 2; ++step) {
    const Failing read([&] { return (*session)->Run({}, {"read:0"}, {}).status(); });
    EXPECT_EQ(read.status.code(), StatusCode::kNotFound) << read.status;
    EXPECT_TRUE(std::string(read.status.message()).ends_with(read.name)) << read.status;
    EXPECT_TRUE(read.Logged("RunStep")) << read.name << "\n" << read.log;
    EXPECT_NE(read.name, last);
    last = read.name;
  }
}

TEST_F(RequestIdsTest, AStepOfAClientOfThisProcessHasANameToo) {
  auto session =
      ClientSession::Create(*ConnectToMaster(server_->target()), ReadsNoFile().def(), {});
  ASSERT_TRUE(session.ok()) << session.status();
  const Failing first([&] { return (*session)->Run({}, {"read:0"}, {}).status(); });
  const Failing second([&] { return (*session)->Run({}, {"read:0"}, {}).status(); });
  EXPECT_NE(first.name, second.name);
}

// As TensorFlow's clients, which send no names.
TEST_F(RequestIdsTest, AServerNamesWhatItsClientDoesNot) {
  pb::CreateSessionRequest create;
  *create.mutable_graph_def() = ReadsNoFile().def();
  pb::CreateSessionResponse created;
  ASSERT_TRUE(Call(methods::kMasterCreateSession, create, &created).ok());
  pb::RunStepRequest run;
  run.set_session_handle(created.session_handle());
  run.add_fetch("read:0");
  pb::RunStepResponse ran;
  std::set<std::string> names;
  for (int i = 0; i < 2; ++i) {
    const Failing read([&] { return Call(methods::kMasterRunStep, run, &ran); });
    EXPECT_EQ(read.status.code(), StatusCode::kNotFound) << read.status;
    EXPECT_TRUE(read.Logged("RunStep")) << read.name << "\n" << read.log;
    names.insert(read.name);
  }
  run.set_store_errors_in_response_body(true);
  const Failing in_body([&] {
    const Status status = Call(methods::kMasterRunStep, run, &ran);
    return status.ok()
               ? MakeStatus(static_cast<StatusCode>(ran.status_code()), ran.status_error_message())
               : status;
  });
  EXPECT_TRUE(in_body.Logged("RunStep")) << in_body.name << "\n" << in_body.log;
  names.insert(in_body.name);
  EXPECT_EQ(names.size(), 3u);
  pb::RunCallableRequest call;
  call.set_session_handle(created.session_handle());
  call.set_handle(12345);
  pb::RunCallableResponse called;
  const Failing callable([&] { return Call(methods::kMasterRunCallable, call, &called); });
  EXPECT_TRUE(callable.Logged("RunCallable")) << callable.name << "\n" << callable.log;
}

TEST_F(RequestIdsTest, ARequestThatComesTwiceSaysWhich) {
  pb::RunStepRequest run;
  run.set_session_handle("none");
  run.set_request_id(0x4d);
  pb::RunStepResponse ran;
  for (int i = 0; i < 2; ++i) {
    const Failing call([&] { return Call(methods::kMasterRunStep, run, &ran); });
    EXPECT_EQ(call.name, RequestText(0x4d));
    EXPECT_TRUE(call.Logged("RunStep")) << call.log;
  }
}

TEST_F(RequestIdsTest, CallsThatPrepareStepsHaveNames) {
  auto session = ClientSession::Create(Master(), ReadsNoFile().def(), {});
  ASSERT_TRUE(session.ok()) << session.status();
  const Failing partial(
      [&] { return (*session)->PartialRunSetup({}, {"nothing:0"}, {}).status(); });
  EXPECT_TRUE(partial.Logged("PartialRunSetup")) << partial.name << "\n" << partial.log;
  pb::CallableOptions options;
  options.add_fetch("nothing:0");
  const Failing callable([&] { return (*session)->MakeCallable(options).status(); });
  EXPECT_TRUE(callable.Logged("MakeCallable")) << callable.name << "\n" << callable.log;
}

TEST_F(RequestIdsTest, CallsForWholeSessionsHaveNames) {
  pb::CreateSessionRequest create;
  create.mutable_graph_def()->add_node()->set_op("NoSuchOp");
  pb::CreateSessionResponse created;
  const Failing opened([&] { return Call(methods::kMasterCreateSession, create, &created); });
  EXPECT_NE(opened.log.find("CreateSession of a client failed" + opened.name), std::string::npos)
      << opened.log;
  pb::ExtendSessionRequest extend;
  extend.set_session_handle("none");
  pb::ExtendSessionResponse extended;
  const Failing more([&] { return Call(methods::kMasterExtendSession, extend, &extended); });
  EXPECT_TRUE(more.Logged("ExtendSession")) << more.name << "\n" << more.log;
  pb::CloseSessionRequest close;
  close.set_session_handle("none");
  pb::CloseSessionResponse closed;
  const Failing end([&] { return Call(methods::kMasterCloseSession, close, &closed); });
  EXPECT_TRUE(end.Logged("CloseSession")) << end.name << "\n" << end.log;
  EXPECT_NE(end.name, more.name);
}

TEST_F(RequestIdsTest, LinesThatKernelsLogNameTheRequest) {
  TestGraph graph = ReadsNoFile();  // for its text
  graph.Add("log", "PrintV2", {"path"});
  const std::shared_ptr<MasterInterface> masters[] = {Master(),
                                                      *ConnectToMaster(server_->target())};
  std::set<std::string> lines;
  for (const auto& master : masters) {
    auto session = ClientSession::Create(master, graph.def(), {});
    ASSERT_TRUE(session.ok()) << session.status();
    for (int step = 0; step < 2; ++step) {
      ::testing::internal::CaptureStderr();
      const Status ran = (*session)->Run({}, {}, {"log"}).status();
      const std::string log = ::testing::internal::GetCapturedStderr();
      ASSERT_TRUE(ran.ok()) << ran;
      const std::size_t line = log.find("a kernel says so [request ");
      ASSERT_NE(line, std::string::npos) << log;
      lines.insert(log.substr(line, log.find(']', line) - line));
    }
  }
  EXPECT_EQ(lines.size(), 4u) << "each step has a name of its own";
}

TEST_F(RequestIdsTest, AWorkerNamesTheStepsOfOtherMasters) {
  pb::RunGraphRequest run;
  run.set_graph_handle("00000000000000ff");
  run.set_request_id(0x4d);
  pb::RunGraphResponse ran;
  const Failing call([&] { return Call(methods::kWorkerRunGraph, run, &ran); });
  EXPECT_EQ(call.name, RequestText(0x4d));
  EXPECT_TRUE(call.Logged("RunGraph")) << call.log;
}

TEST(RequestIdsAcrossTasksTest, AllTasksOfAStepLogItUnderOneName) {
  std::unique_ptr<TaskServer> ps, worker;
  // Somebody else may take a port in between: then others are tried.
  for (int attempt = 0; attempt < 10; ++attempt) {
    const std::vector<int> ports = testing::FreePorts(2);
    const ClusterSpec spec =
        *ClusterSpec::Parse(StrCat("ps|127.0.0.1:", ports[0], ",worker|127.0.0.1:", ports[1]));
    ps = MakeServer(spec, "ps");
    worker = MakeServer(spec, "worker");
    if (ps->Start().ok() && worker->Start().ok()) break;
    ASSERT_LT(attempt, 9) << "no two ports are free";
  }
  const TestGraph graph = ReadsNoFile("/job:ps");
  const std::shared_ptr<MasterInterface> masters[] = {
      NewGrpcRemoteMaster(worker->address(), ClientPool()), *ConnectToMaster(worker->target())};
  for (const auto& master : masters) {
    auto session = ClientSession::Create(master, graph.def(), {});
    ASSERT_TRUE(session.ok()) << session.status();
    const Failing read([&] { return (*session)->Run({}, {"read:0"}, {}).status(); });
    EXPECT_EQ(read.status.code(), StatusCode::kNotFound) << read.status;
    EXPECT_TRUE(read.Logged("RunGraph")) << read.name << "\n" << read.log;
    EXPECT_EQ(read.Logged("RunStep"), &master == &masters[0]) << read.name << "\n" << read.log;
  }
}

TEST(RequestTextTest, AnErrorIsNamedOnce) {
  const Status error = errors::Internal("it is so");
  const Status named = OfRequest(error, 0xab);
  EXPECT_EQ(named.message(), "it is so [request 00000000000000ab]");
  EXPECT_EQ(OfRequest(named, 0xab), named);
  EXPECT_EQ(OfRequest(error, 0), error);
  EXPECT_TRUE(OfRequest(OkStatus(), 0xab).ok());
  const Status end = errors::OutOfRange("End of sequence");
  EXPECT_EQ(OfRequest(end, 0xab), end);
}

}  // namespace
}  // namespace millrace
