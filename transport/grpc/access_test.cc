// SPDX-License-Identifier: Apache-2.0
// Who may call what: every caller that there can be × every method of every service.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "distributed_runtime/stub/remote_master.h"
#include "distributed_runtime/task_server.h"
#include "distributed_runtime/test_engine.h"
#include "proto/eager.pb.h"
#include "proto/link.pb.h"
#include "proto/observe.pb.h"
#include "proto/worker.pb.h"
#include "rendezvous/rendezvous.h"
#include "session/client_session.h"
#include "tensor/tensor_proto.h"
#include "tests/cluster/certificate_files.h"
#include "tests/cluster/free_ports.h"
#include "transport/grpc/client_pool.h"
#include "transport/grpc/credentials.h"
#include "transport/grpc/grpc_util.h"
#include "transport/grpc/health_watch_testlib.h"
#include "transport/link/link_hub.h"
#include "transport/methods.h"
#include "transport/peer_table.h"
#include "transport/security/secret.h"

namespace millrace {
namespace {

namespace tls = grpc::experimental;
using std::chrono::hours;
using std::chrono::seconds;
using testing::CertificateFiles;
using testing::Content;

constexpr char kToken[] = "correct-horse-battery-staple";
constexpr char kPs[] = "/job:ps/replica:0/task:0";

// All paths that methods.h names.
std::vector<std::string> AllMethods() {
  const std::string text = Content("transport/methods.h");
  std::vector<std::string> methods;
  const auto find = [&](const char* pattern, const std::string& service) {
    const std::regex regex(pattern);
    for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
      methods.push_back(StrCat(service, (*it)[1].str()));
    }
  };
  find(R"(MR_MASTER_METHOD\((\w+)\);)", "/tensorflow.MasterService/");
  find(R"(MR_WORKER_METHOD\((\w+)\);)", "/tensorflow.WorkerService/");
  find(R"(MR_EAGER_METHOD\((\w+)\);)", "/tensorflow.eager.EagerService/");
  find(R"~("/millrace.ControlService/(\w+)")~", "/millrace.ControlService/");
  return methods;
}

// One who calls, in whatever way: none of the checks of our own client are in its way.
struct Caller {
  std::string name;
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  std::vector<std::pair<std::string, std::string>> metadata{};
};

std::shared_ptr<grpc::ChannelCredentials> Showing(const Credentials& files,
                                                  const std::string& believed) {
  std::vector<tls::IdentityKeyCertPair> own;
  if (files.tls()) own.push_back({Content(files.tls_key), Content(files.tls_cert)});
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<tls::StaticDataCertificateProvider>(believed, own));
  options.watch_root_certs();
  if (files.tls()) options.watch_identity_key_cert_pairs();
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<tls::NoOpCertificateVerifier>());
  return tls::TlsCredentials(options);
}

class Connection {
 public:
  Connection(const std::string& address, const Caller& caller) : caller_(caller) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    channel_ = grpc::CreateCustomChannel(address, caller.credentials, arguments);
  }

  // The answer to an empty request.
  grpc::Status Call(const std::string& method, std::chrono::milliseconds limit = seconds(20),
                    grpc::ByteBuffer* answer = nullptr) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    for (const auto& [key, value] : caller_.metadata) context.AddMetadata(key, value);
    const grpc::Slice nothing("");
    return Send(&context, method, grpc::ByteBuffer(&nothing, 1), answer);
  }

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // The code of the answer to a request. `answer` is read if there is one.
  template <typename Request, typename Response>
  Status Ask(const std::string& method, const Request& request, Response* answer) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + seconds(20));
    grpc::ByteBuffer bytes;
    const grpc::Status status = Send(&context, method, ToByteBuffer(request), &bytes);
    if (!status.ok()) return FromGrpcStatus(status);
    return ReceivedBytes(bytes).Parse(answer);
  }

 private:
  grpc::Status Send(grpc::ClientContext* context, const std::string& method,
                    const grpc::ByteBuffer& request, grpc::ByteBuffer* answer) {
    grpc::ByteBuffer response;
    std::promise<grpc::Status> answered;
    grpc::GenericStub(channel_).UnaryCall(
        context, method, grpc::StubOptions(), &request, &response,
        [&](grpc::Status status) { answered.set_value(std::move(status)); });
    const grpc::Status status = answered.get_future().get();
    if (answer != nullptr) *answer = response;
    return status;
  }

  const Caller caller_;
  std::shared_ptr<grpc::Channel> channel_;
};

bool IsRefused(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
         status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
}
// A method of methods.h that this server does not have: there is nothing to refuse.
bool IsUnknown(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty();
}

// Methods that a client's certificate is a right to, with an empty request: RecvTensor, for a step
// that is nobody's, is not.
bool IsForClients(std::string_view method) {
  return method.starts_with("/tensorflow.MasterService/") ||
         method.starts_with("/tensorflow.eager.EagerService/") ||
         method == methods::kWorkerGetStatus || method == methods::kControlStatus ||
         method == methods::kControlLedger;
}

class AccessTest : public ::testing::Test {
 protected:
  // A ps, which is called, and the one worker of its cluster, which it calls.
  void Start(const Credentials& credentials, bool links = true) {
    Credentials others = credentials;
    if (credentials.tls()) {
      others = files_.Issue(files_.Task("worker", 0));
      others.token_file = credentials.token_file;
    }
    for (int attempt = 0; attempt < 10; ++attempt) {
      const std::vector<int> ports = testing::FreePorts(2);
      const ClusterSpec cluster =
          *ClusterSpec::Parse(StrCat("ps|127.0.0.1:", ports[0], ",worker|127.0.0.1:", ports[1]));
      server_ = Create(cluster, "ps", credentials, links);
      worker_ = Create(cluster, "worker", others, links);
      ASSERT_TRUE(server_ != nullptr && worker_ != nullptr);
      if (server_->Start().ok() && worker_->Start().ok()) return;
    }
    FAIL() << "no two ports are free";
  }

  static std::unique_ptr<TaskServer> Create(const ClusterSpec& cluster, const std::string& job,
                                            const Credentials& credentials, bool links) {
    TaskServerOptions options;
    options.links = links;
    options.server.cluster = cluster;
    options.server.job_name = job;
    options.server.inter_op_threads = 2;
    options.server.intra_op_threads = 1;
    options.server.accept_shutdown = true;
    options.server.credentials = credentials;
    options.ops = &TheTestEngine().ops;
    options.kernels = &TheTestEngine().kernels;
    StatusOr<std::unique_ptr<TaskServer>> server = TaskServer::Create(options);
    EXPECT_TRUE(server.ok()) << server.status();
    return server.ok() ? *std::move(server) : nullptr;
  }

  Caller WithCertificate(std::string name, const CertificateName& of, const Validity& validity = {},
                         const KeyedCertificate* authority = nullptr) {
    return {std::move(name), Showing(files_.Issue(of, validity, authority), Believed())};
  }
  std::string Believed() const { return files_.authority().certificate; }

  // Whether `may` says what the server does with each method. Returns how many it has.
  int Check(const Caller& caller, const std::function<bool(const std::string&)>& may) {
    Connection connection(server_->address(), caller);
    int served = 0;
    if (may(methods::kControlStatus)) {
      EXPECT_TRUE(connection.Call(methods::kControlStatus).ok()) << caller.name;
    }
    for (const std::string& method : AllMethods()) {
      // Some that are served wait for what never comes.
      const grpc::Status status = may(method)
                                      ? connection.Call(method, std::chrono::milliseconds(300))
                                      : connection.Call(method);
      const std::string what = StrCat(caller.name, " ", method, ": ", int{status.error_code()}, " ",
                                      status.error_message());
      if (IsUnknown(status)) continue;
      EXPECT_EQ(!IsRefused(status), may(method)) << what;
      ++served;
    }
    return served;
  }
  void CheckNothing(const Caller& caller) {
    Check(caller, [](const std::string&) { return false; });
    CheckHealth(caller, true);
  }
  // TLS does not even take the connection.
  void CheckNoConnection(const Caller& caller) {
    Check(caller, [](const std::string&) { return false; });
    CheckHealth(caller, false);
  }
  void CheckAll(const Caller& caller) {
    EXPECT_EQ(Check(caller, [](const std::string&) { return true; }),
              static_cast<int>(AllMethods().size()))
        << caller.name;
    CheckHealth(caller, true);
  }
  // gRPC's own service, which is there for whoever has a connection.
  void CheckHealth(const Caller& caller, bool may) {
    const grpc::Status status =
        Connection(server_->address(), caller).Call("/grpc.health.v1.Health/Check");
    const std::string what =
        StrCat(caller.name, ": ", int{status.error_code()}, " ", status.error_message());
    if (may) {
      EXPECT_TRUE(status.ok()) << what;
    } else {
      EXPECT_TRUE(status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                  status.error_code() == grpc::StatusCode::UNAUTHENTICATED)
          << what;
    }
    testing::HealthWatch watch(Connection(server_->address(), caller).channel(),
                               testing::HealthRequest(""), caller.metadata);
    // Whoever may has told the server to end by now.
    const int said = watch.Next();
    EXPECT_EQ(said == testing::kServing || said == testing::kNotServing, may)
        << caller.name << ": " << said;
  }

  CertificateFiles files_;
  std::unique_ptr<TaskServer> server_, worker_;
};

// What is tried is what the server itself says that it serves: a method that is added, wherever its
// name stands, is in the tests that follow or fails this one.
TEST_F(AccessTest, MethodsAreThoseOfTheServices) {
  Start({});
  pb::PageRequest request;
  request.set_target("/rpcz?all=1");
  pb::PageResponse page;
  const Status read =
      Connection(server_->address(), {"anybody"}).Ask(methods::kControlPage, request, &page);
  ASSERT_TRUE(read.ok()) << read;
  const std::regex row(R"(<td>(/[\w.]+/\w+)</td><td>grpc</td>)");
  std::set<std::string> served;
  for (std::sregex_iterator it(page.body().begin(), page.body().end(), row), end; it != end; ++it) {
    served.insert((*it)[1].str());
  }
  EXPECT_GE(served.size(), 30u) << page.body();
  const std::vector<std::string> tried = AllMethods();
  EXPECT_EQ(served, std::set<std::string>(tried.begin(), tried.end()));
}

TEST_F(AccessTest, ACertificateIsARightToWhatItsRoleDoes) {
  Start(files_.Issue(files_.Task("ps", 0)));
  // Nobody, or not known to be anybody.
  CheckNoConnection({"plaintext"});
  CheckNoConnection({"no certificate", Showing({}, Believed())});
  const Validity over{-hours(48), -hours(24)}, later{hours(24), hours(48)};
  CheckNoConnection(WithCertificate("expired", files_.Task("worker", 0), over));
  CheckNoConnection(WithCertificate("not good yet", files_.Task("worker", 0), later));
  const KeyedCertificate foreign = testing::NewAuthority();
  CheckNoConnection(WithCertificate("foreign", files_.Task("worker", 0), {}, &foreign));
  // Known, and of somewhere else.
  CheckNothing(WithCertificate("other task", files_.Task("worker", 1)));
  CheckNothing(WithCertificate("other job", files_.Task("evaluator", 0)));
  CheckNothing(WithCertificate("other cluster", {"red", Role::kTask, "worker", 0}));
  CheckNothing(WithCertificate("client elsewhere", {"red", Role::kClient}));
  CheckNothing(WithCertificate("administrator of none", {"", Role::kAdmin}));
  // The right ones.
  CheckAll(WithCertificate("worker", files_.Task("worker", 0)));
  CheckAll(WithCertificate("itself", files_.Task("ps", 0)));
  Check(WithCertificate("client", files_.Client()),
        [](const std::string& method) { return IsForClients(method); });
  // The same by names of hosts, for authorities that sign nothing else.
  const auto by_dns = [this](std::string name, const CertificateName& of) {
    const Credentials files = files_.Issue(of, {}, nullptr, NameForm::kDns);
    return Caller{std::move(name), Showing(files, Believed())};
  };
  CheckAll(by_dns("worker by DNS", files_.Task("worker", 0)));
  CheckNothing(by_dns("other task by DNS", files_.Task("worker", 1)));
  CheckNothing(by_dns("other cluster by DNS", {"red", Role::kTask, "worker", 0}));
  Check(by_dns("client by DNS", files_.Client()), IsForClients);
  Check(WithCertificate("administrator", files_.Admin()), [](const std::string& method) {
    return method == methods::kControlStatus || method == methods::kControlShutdown ||
           method == methods::kControlDescribeStep || method == methods::kControlWhyWaiting ||
           method == methods::kControlPage || method == methods::kControlTrace ||
           method == methods::kControlLedger || method == methods::kWorkerGetStatus;
  });
}

// What a TensorFlow 2 client does in a context of the ps.
class EagerCaller {
 public:
  static constexpr uint64_t kContext = 0x8000000000000077;
  static constexpr char kDevice[] = "/job:ps/replica:0/task:0/device:CPU:0";

  EagerCaller(const std::string& address, const Caller& caller) : connection_(address, caller) {}

  Status Create(uint64_t id, bool clear = false, uint64_t view = 0) {
    pb::CreateContextRequest request;
    request.set_context_id(id);
    request.set_context_view_id(view);
    request.set_clear_existing_contexts(clear);
    request.mutable_server_def()->set_job_name("ps");
    pb::CreateContextResponse response;
    const Status made = connection_.Ask(methods::kEagerCreateContext, request, &response);
    if (made.ok()) incarnation_ = response.device_attributes(0).incarnation();
    return made;
  }

  template <typename Request, typename Response>
  Status InContext(const char* method) {
    Request request;
    request.set_context_id(kContext);
    Response response;
    return connection_.Ask(method, request, &response);
  }
  Status KeepAlive() {
    return InContext<pb::KeepAliveRequest, pb::KeepAliveResponse>(methods::kEagerKeepAlive);
  }

  // Has the ps send a tensor in the context's step.
  Status SendAtPs() {
    pb::EnqueueRequest request;
    request.set_context_id(kContext);
    pb::SendTensorOp& value = *request.add_queue()->mutable_send_tensor();
    value.set_op_id(1);
    value.set_device_name(kDevice);
    TensorToProto(Tensor::Scalar(7.0f), value.add_tensors());
    pb::Operation& send = *request.add_queue()->mutable_operation();
    send.set_id(-1);
    send.set_name("_Send");
    send.set_device(kDevice);
    pb::RemoteTensorHandle& input = *send.add_op_inputs()->mutable_remote_handle();
    input.set_op_id(1);
    input.set_device(kDevice);
    input.set_op_device(kDevice);
    auto& attrs = *send.mutable_attrs();
    AttrToProto(AttrValue(kFloat), &attrs["T"]);
    AttrToProto(AttrValue("result"), &attrs["tensor_name"]);
    AttrToProto(AttrValue(kDevice), &attrs["send_device"]);
    AttrToProto(AttrValue(kDevice), &attrs["recv_device"]);
    AttrToProto(AttrValue(static_cast<int64_t>(incarnation_)), &attrs["send_device_incarnation"]);
    AttrToProto(AttrValue(false), &attrs["client_terminated"]);
    pb::EnqueueResponse response;
    return connection_.Ask(methods::kEagerEnqueue, request, &response);
  }

  // Runs a function of nothing in the context as a part of the step.
  Status RunPartOf(int64_t step_id, uint64_t context) {
    pb::EnqueueRequest added;
    added.set_context_id(context);
    pb::RegisterFunctionOp& function = *added.add_queue()->mutable_register_function();
    function.mutable_function_def()->mutable_signature()->set_name("nothing");
    function.set_is_component_function(true);
    pb::EnqueueResponse registered;
    MR_RETURN_IF_ERROR(connection_.Ask(methods::kEagerEnqueue, added, &registered));
    pb::RunComponentFunctionRequest request;
    request.set_context_id(context);
    pb::Operation& call = *request.mutable_operation();
    call.set_id(99);
    call.set_name("nothing");
    call.set_device(kDevice);
    call.set_is_function(true);
    call.set_is_component_function(true);
    call.set_func_step_id(step_id);
    pb::RunComponentFunctionResponse response;
    return connection_.Ask(methods::kEagerRunComponentFunction, request, &response);
  }

  Status Receive(int64_t step_id) {
    RendezvousKey key;
    key.src_device = key.dst_device = kDevice;
    key.src_incarnation = incarnation_;
    key.edge_name = "result";
    pb::RecvTensorRequest request;
    request.set_step_id(step_id);
    request.set_rendezvous_key(key.ToString());
    pb::RecvTensorResponse response;
    return connection_.Ask(methods::kWorkerRecvTensor, request, &response);
  }

 private:
  Connection connection_;
  uint64_t incarnation_ = 0;
};

TEST_F(AccessTest, AClientReceivesTheResultsOfItsOwnContextsAlone) {
  Start(files_.Issue(files_.Task("ps", 0)));
  EagerCaller owner(server_->address(), WithCertificate("owner", files_.Client()));
  EagerCaller other(server_->address(), WithCertificate("other", files_.Client()));
  EagerCaller worker(server_->address(), WithCertificate("worker", files_.Task("worker", 0)));
  EagerCaller admin(server_->address(), WithCertificate("admin", files_.Admin()));
  constexpr auto kStep = static_cast<int64_t>(EagerCaller::kContext);
  ASSERT_TRUE(owner.Create(EagerCaller::kContext).ok());
  const Status sent = owner.SendAtPs();
  ASSERT_TRUE(sent.ok()) << sent;

  // Whoever has no context has no step, and who has one has not another's.
  EXPECT_TRUE(errors::IsPermissionDenied(other.Receive(kStep)));
  EXPECT_TRUE(errors::IsPermissionDenied(other.Receive(-5)));
  ASSERT_TRUE(other.Create(EagerCaller::kContext + 1).ok());
  const Status foreign = other.Receive(kStep);
  EXPECT_TRUE(errors::IsPermissionDenied(foreign)) << foreign;
  EXPECT_NE(Message(foreign).find("certificate"), std::string_view::npos) << foreign;
  EXPECT_TRUE(errors::IsPermissionDenied(admin.Receive(kStep)));
  // Steps of sessions are nobody's.
  EXPECT_TRUE(errors::IsPermissionDenied(owner.Receive(1)));
  EXPECT_TRUE(errors::IsPermissionDenied(owner.Receive(0)));
  const Status received = owner.Receive(kStep);
  EXPECT_TRUE(received.ok()) << received;

  // A step is nobody's because he says so.
  const Status ran = other.RunPartOf(-77, EagerCaller::kContext + 1);
  EXPECT_TRUE(ran.ok()) << ran;
  EXPECT_TRUE(errors::IsPermissionDenied(owner.Receive(-77)));
  EXPECT_TRUE(errors::IsPermissionDenied(other.RunPartOf(kStep, EagerCaller::kContext + 1)));
  EXPECT_TRUE(errors::IsPermissionDenied(other.Receive(kStep)));
  EXPECT_TRUE(errors::IsInvalidArgument(other.RunPartOf(1, EagerCaller::kContext + 1)));
  EXPECT_TRUE(errors::IsPermissionDenied(other.Receive(1)));

  // Nor is there anything else that another one may do in the context.
  EXPECT_TRUE(errors::IsPermissionDenied(other.SendAtPs()));
  EXPECT_TRUE(errors::IsPermissionDenied(other.KeepAlive()));
  EXPECT_TRUE(errors::IsPermissionDenied(
      (other.InContext<pb::CloseContextRequest, pb::CloseContextResponse>(
          methods::kEagerCloseContext))));
  EXPECT_TRUE(errors::IsPermissionDenied(
      (other.InContext<pb::WaitQueueDoneRequest, pb::WaitQueueDoneResponse>(
          methods::kEagerWaitQueueDone))));
  EXPECT_TRUE(errors::IsPermissionDenied(other.Create(EagerCaller::kContext, false, 5)));
  ASSERT_TRUE(other.Create(EagerCaller::kContext + 2, /*clear=*/true).ok());
  const Status alive = owner.KeepAlive();
  EXPECT_TRUE(alive.ok()) << alive;
  // Tasks call in contexts for those that made them.
  EXPECT_TRUE(worker.KeepAlive().ok());
}

TEST_F(AccessTest, ATaskCannotCallInTheNameOfAnother) {
  Start(files_.Issue(files_.Task("ps", 0)));
  Caller caller = WithCertificate("worker as ps", files_.Task("worker", 0));
  caller.metadata = {{kPeerMetadata, PeerIdentity{kPs, 7, "", kPs}.ToString()}};
  CheckNothing(caller);
}

TEST_F(AccessTest, ATokenIsARightToEverything) {
  Credentials credentials;
  credentials.token_file = files_.Token(kToken);
  Start(credentials);
  const auto with = [](const std::string& name, std::vector<std::string> tokens) {
    Caller caller{name};
    for (std::string& token : tokens) {
      caller.metadata.emplace_back(kTokenMetadata, std::move(token));
    }
    return caller;
  };
  CheckNothing(with("no token", {}));
  CheckNothing(with("empty token", {""}));
  CheckNothing(with("wrong token", {"correct-horse-battery-stable"}));
  CheckNothing(with("beginning of the token", {std::string(kToken).substr(0, 20)}));
  CheckNothing(with("longer token", {StrCat(kToken, "s")}));
  CheckNothing(with("two tokens", {"correct-horse-battery-stable", kToken}));
  CheckAll(with("right token", {kToken}));
  const grpc::Status status =
      Connection(server_->address(), with("no token", {})).Call(methods::kControlStatus);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_NE(status.error_message().find("--token_file"), std::string::npos)
      << status.error_message();
}

TEST_F(AccessTest, WithBothBothAreAskedFor) {
  Credentials credentials = files_.Issue(files_.Task("ps", 0));
  credentials.token_file = files_.Token(kToken);
  Start(credentials);
  Caller caller = WithCertificate("certificate alone", files_.Task("worker", 0));
  CheckNothing(caller);
  caller.name = "certificate and wrong token";
  caller.metadata = {{kTokenMetadata, "correct-horse-battery-stable"}};
  CheckNothing(caller);
  CheckNoConnection(
      {"token alone", grpc::InsecureChannelCredentials(), {{kTokenMetadata, kToken}}});
  Caller client = WithCertificate("client with the token", files_.Client());
  client.metadata = {{kTokenMetadata, kToken}};
  Check(client, [](const std::string& method) { return IsForClients(method); });
  caller.name = "both";
  caller.metadata = {{kTokenMetadata, kToken}};
  CheckAll(caller);
}

// A step that needs both tasks, asked for by a client.
TEST_F(AccessTest, TasksThatKnowEachOtherWorkTogether) {
  TestGraph graph;
  graph.Const("a", 2, "/job:ps/task:0");
  graph.Const("b", 3, "/job:worker/task:0");
  graph.Sum("sum", "a", "b", "/job:worker/task:0");
  graph.Identity("back", "sum", "/job:ps/task:0");
  const std::string token = files_.Token(kToken);
  for (const bool links : {true, false}) {
    for (const bool with_tls : {true, false}) {
      Credentials own, clients;
      if (with_tls) own = files_.Issue(files_.Task("ps", 0));
      if (with_tls) clients = files_.Issue(files_.Client());
      own.token_file = clients.token_file = token;
      Start(own, links);
      const StatusOr<std::shared_ptr<const LoadedCredentials>> loaded =
          LoadedCredentials::Load(clients);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      auto session = ClientSession::Create(
          NewGrpcRemoteMaster(server_->address(), ClientPool(), *loaded), graph.def(), {});
      ASSERT_TRUE(session.ok()) << session.status();
      for (int step = 0; step < 3; ++step) {
        const auto values = (*session)->Run({}, {"back:0"}, {});
        ASSERT_TRUE(values.ok()) << values.status();
        EXPECT_EQ((*values)[0].scalar<float>(), 5);
      }
      EXPECT_TRUE((*session)->Close().ok());
    }
  }
}

TEST_F(AccessTest, LinksAreForTheTaskThatWasOfferedOne) {
  Start(files_.Issue(files_.Task("ps", 0)));
  const auto offered_to = [this](const CertificateName& name) {
    grpc::ByteBuffer bytes;
    const grpc::Status status = Connection(server_->address(), WithCertificate("", name))
                                    .Call(methods::kControlOfferLink, seconds(20), &bytes);
    EXPECT_TRUE(status.ok()) << status.error_message();
    pb::OfferLinkResponse offer;
    EXPECT_TRUE(ReceivedBytes(bytes).Parse(&offer).ok());
    return offer;
  };
  ThreadPool control("control", 1), work("work", 1);
  const auto connects = [&](const std::string& as, const pb::OfferLinkResponse& offer) {
    LinkHub hub(as, &control, &work);
    EXPECT_TRUE(hub.Start().ok());
    Notification done;
    hub.Connect(kPs, offer, [&] { done.Notify(); });
    EXPECT_TRUE(done.WaitUntil(DeadlineAfter(seconds(20))));
    return static_cast<bool>(hub.Find(kPs));
  };
  EXPECT_FALSE(connects("/job:worker/replica:0/task:0", offered_to(files_.Task("ps", 0))));
  EXPECT_TRUE(connects("/job:worker/replica:0/task:0", offered_to(files_.Task("worker", 0))));
}

TEST_F(AccessTest, SaysToWhomItIsAndWhatWasExpected) {
  Start(files_.Issue(files_.Task("ps", 0)));
  const auto message = [this](const CertificateName& name, const char* method) {
    return Connection(server_->address(), WithCertificate("", name)).Call(method).error_message();
  };
  const std::string other = message(files_.Task("worker", 1), methods::kWorkerRunGraph);
  EXPECT_NE(other.find("/job:worker/replica:0/task:1"), std::string::npos) << other;
  EXPECT_NE(other.find(kPs), std::string::npos) << other;
  const std::string client = message(files_.Client(), methods::kWorkerRunGraph);
  EXPECT_NE(client.find("millrace://blue/client"), std::string::npos) << client;
  EXPECT_NE(client.find("which is for tasks"), std::string::npos) << client;
  const std::string red = message({"red", Role::kClient}, methods::kMasterRunStep);
  EXPECT_NE(red.find("'red'"), std::string::npos) << red;
  EXPECT_NE(red.find("'blue'"), std::string::npos) << red;
}

}  // namespace
}  // namespace millrace
