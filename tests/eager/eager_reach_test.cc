// SPDX-License-Identifier: Apache-2.0
// Where a context may send a server: to whom it names as another task.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "tests/cluster/certificate_files.h"
#include "tests/eager/eager_client.h"

namespace millrace {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr char kElsewhere[] = "192.0.2.1:80";  // of documents: nobody has it

testing::CertificateFiles& Files() {
  static auto* const files = new testing::CertificateFiles;
  return *files;
}

// Somebody on this machine who is no task.
class Bystander {
 public:
  Bystander() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Bystander() { close(fd_); }

  std::string address() const { return StrCat("127.0.0.1:", port_); }
  bool WasCalled() const {
    const int connection = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) close(connection);
    return connection >= 0;
  }

 private:
  const int fd_;
  int port_ = 0;
};

// A worker that knows itself alone, and a client that says where a ps is.
class Visitor {
 public:
  explicit Visitor(const testing::InProcessCluster::Configure& configure = nullptr,
                   const std::shared_ptr<const LoadedCredentials>& credentials = nullptr)
      : cluster_(0, 1, configure), worker_(cluster_, "worker", kWorker, credentials) {}

  pb::ServerDef Naming(const std::string& ps) const {
    pb::ServerDef server;
    server.set_job_name("worker");
    const auto add = [&server](const char* name, const std::string& address) {
      pb::JobDef& job = *server.mutable_cluster()->add_job();
      job.set_name(name);
      (*job.mutable_tasks())[0] = address;
    };
    add("worker", worker_.address_);
    if (!ps.empty()) add("ps", ps);
    return server;
  }

  template <typename Request>
  static void AddDevice(Request* request) {
    pb::DeviceAttributes& device = *request->add_cluster_device_attributes();
    device.set_name(kPs);
    device.set_device_type("CPU");
    device.set_incarnation(5);
  }

  Status Create(const std::string& ps) {
    pb::CreateContextRequest request;
    request.set_context_id(kContext);
    request.set_keep_alive_secs(600);
    *request.mutable_server_def() = Naming(ps);
    AddDevice(&request);
    pb::CreateContextResponse response;
    MR_RETURN_IF_ERROR(worker_.Call(methods::kEagerCreateContext, request, &response));
    return worker_.Enqueue(AddToVariable());
  }

  Status Update(uint64_t view, const std::string& ps) {
    pb::UpdateContextRequest request;
    request.set_context_id(kContext);
    request.set_context_view_id(view);
    *request.mutable_server_def() = Naming(ps);
    AddDevice(&request);
    pb::UpdateContextResponse response;
    return worker_.Call(methods::kEagerUpdateContext, request, &response);
  }

  // Of a function whose variable is at the ps: its eager service is asked for a part.
  Status CallFunction() {
    const int64_t x = next_++;
    MR_RETURN_IF_ERROR(worker_.Send(x, Floats({1})));
    pb::QueueItem call = worker_.Op(next_++, "add_to", {x, x}, {});
    call.mutable_operation()->set_is_function(true);
    call.mutable_operation()->mutable_op_inputs(1)->mutable_remote_handle()->set_device(kPs);
    return worker_.Enqueue(call);
  }

  // Of a tensor that the ps has sent: its worker service is asked for it.
  Status Receive() {
    pb::QueueItem receive = worker_.Op(next_++, "_Recv", {}, {{"tensor_type", kFloat}});
    auto& attrs = *receive.mutable_operation()->mutable_attrs();
    AttrToProto(AttrValue("x"), &attrs["tensor_name"]);
    AttrToProto(AttrValue(std::string(kPs)), &attrs["send_device"]);
    AttrToProto(AttrValue(std::string(kWorker)), &attrs["recv_device"]);
    AttrToProto(AttrValue(int64_t{5}), &attrs["send_device_incarnation"]);
    AttrToProto(AttrValue(false), &attrs["client_terminated"]);
    return worker_.Enqueue(receive);
  }

  // Neither way leads to the ps, and the context is good for everything else.
  void ExpectRefused(const std::vector<std::string>& says) {
    for (const Status& status : {CallFunction(), Receive()}) {
      EXPECT_TRUE(errors::IsPermissionDenied(status)) << status;
      for (const std::string& text : says) {
        EXPECT_THAT(std::string(Message(status)), HasSubstr(text));
      }
    }
    ASSERT_TRUE(worker_.Send(next_, Floats({1, 2})).ok());
    EXPECT_TRUE(worker_.Enqueue(worker_.Op(next_ + 1, "Square", {next_})).ok());
    next_ += 2;
  }

  testing::InProcessCluster cluster_;
  EagerTask worker_;
  int64_t next_ = 10;
};

// Another cluster's task, which knows no context: it says so if it is called.
class Stranger {
 public:
  explicit Stranger(const testing::InProcessCluster::Configure& configure = nullptr)
      : cluster_(1, 0, configure) {}
  std::string address() const {
    return cluster_.Target("ps", 0).substr(std::string("grpc://").size());
  }

  // Called for a part of a function, which it does not run without a context, and for what that
  // would send, from a device that it does not have. Which of the two answers comes first is luck.
  static void ExpectCalled(const Status& status) {
    EXPECT_TRUE(errors::IsAborted(status)) << status;
    EXPECT_THAT(std::string(Message(status)),
                AnyOf(HasSubstr("Unable to find a context_id"),
                      HasSubstr("RecvTensor expects a different device incarnation")));
    EXPECT_THAT(std::string(Message(status)), HasSubstr("/job:ps"));
  }

 private:
  const testing::InProcessCluster cluster_;
};

testing::InProcessCluster::Configure Allowing(std::vector<std::string> words) {
  return [words](ServerOptions* options) { options->allow = words; };
}

TEST(EagerReachTest, AServerOnLoopbackCallsNobodyElsewhere) {
  Visitor visitor;
  ASSERT_TRUE(visitor.Create(kElsewhere).ok());
  visitor.ExpectRefused(
      {"an eager context brings /job:ps/replica:0/task:0 at 192.0.2.1:80, which "
       "is no address of the cluster of /job:worker/replica:0/task:0, nor on "
       "this machine, nor on the machine of its client (127.0.0.1): start the "
       "server with --allow=network"});
}

TEST(EagerReachTest, AServerOnLoopbackCallsThisMachine) {
  const Stranger stranger;
  Visitor visitor;
  ASSERT_TRUE(visitor.Create(stranger.address()).ok());
  Stranger::ExpectCalled(visitor.CallFunction());
}

TEST(EagerReachTest, AnUpdateLeadsNobodyElsewhere) {
  const Stranger stranger;
  Visitor visitor;
  ASSERT_TRUE(visitor.Create("").ok());
  ASSERT_TRUE(visitor.Update(1, kElsewhere).ok());
  visitor.ExpectRefused({kElsewhere, "nor on this machine"});
  ASSERT_TRUE(visitor.Update(2, stranger.address()).ok());
  Stranger::ExpectCalled(visitor.CallFunction());
  ASSERT_TRUE(visitor.Update(3, kElsewhere).ok());
  visitor.ExpectRefused({kElsewhere, "nor on this machine"});
}

TEST(EagerReachTest, WithoutTheNetworkAmongWhatItMayDoItCallsNobody) {
  const Bystander bystander;
  Visitor visitor(Allowing({"file_read"}));
  ASSERT_TRUE(visitor.Create(bystander.address()).ok());
  visitor.ExpectRefused({bystander.address(), "--allow=network"});
  EXPECT_FALSE(bystander.WasCalled());
}

TEST(EagerReachTest, WithTheNetworkItCallsWhomItIsTold) {
  const Stranger stranger;
  Visitor visitor(Allowing({"network"}));
  ASSERT_TRUE(visitor.Create(stranger.address()).ok());
  Stranger::ExpectCalled(visitor.CallFunction());
}

TEST(EagerReachTest, AnAddressThatIsNoneIsSaidInShort) {
  Visitor visitor(Allowing({"network"}));
  ASSERT_TRUE(visitor.Create(std::string(100'000, 'x')).ok());
  for (const Status& status : {visitor.CallFunction(), visitor.Receive()}) {
    EXPECT_TRUE(errors::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("x... (100000 characters)"));
    EXPECT_LT(Message(status).size(), 2000u);
  }
}

class TokenReachTest : public ::testing::Test {
 protected:
  testing::InProcessCluster::Configure Guarded(const std::string& token,
                                               std::vector<std::string> words = {}) {
    const Credentials files = With(token);
    return [files, words](ServerOptions* options) {
      options->credentials = files;
      options->allow = words;
    };
  }
  static Credentials With(const std::string& token) { return {.token_file = Files().Token(token)}; }

  const std::string token_ = "the-token-of-this-cluster";
  const std::shared_ptr<const LoadedCredentials> shown_ = *LoadedCredentials::Load(With(token_));
};

TEST_F(TokenReachTest, NobodyElsewhereIsCalled) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>(), std::vector<std::string>{"network"}}) {
    Visitor visitor(Guarded(token_, words), shown_);
    ASSERT_TRUE(visitor.Create(kElsewhere).ok());
    visitor.ExpectRefused(
        {kElsewhere, "nor on the machine of its client", "has credentials", "--cluster_spec"});
  }
}

TEST_F(TokenReachTest, AClientOfThisMachineIsCalledBackWithoutTheToken) {
  const Stranger stranger, guarded(Guarded(token_));
  Visitor visitor(Guarded(token_), shown_);
  ASSERT_TRUE(visitor.Create(stranger.address()).ok());
  Stranger::ExpectCalled(visitor.CallFunction());
  ASSERT_TRUE(visitor.Update(1, guarded.address()).ok());
  const Status status = visitor.CallFunction();
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated) << status;
}

TEST_F(TokenReachTest, WithoutTheNetworkAmongWhatItMayDoNobodyIsCalled) {
  const Bystander bystander;
  Visitor visitor(Guarded(token_, {"file_read"}), shown_);
  ASSERT_TRUE(visitor.Create(bystander.address()).ok());
  visitor.ExpectRefused({bystander.address(), "has credentials"});
  EXPECT_FALSE(bystander.WasCalled());
}

TEST(TlsReachTest, OnlyTheOwnClusterIsCalled) {
  const Bystander bystander;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>(), std::vector<std::string>{"network"}}) {
    Visitor visitor(
        [words](ServerOptions* options) {
          options->credentials = Files().Issue(Files().Task(options->job_name, 0));
          options->allow = words;
        },
        *LoadedCredentials::Load(Files().Issue(Files().Client())));
    ASSERT_TRUE(visitor.Create(bystander.address()).ok());
    visitor.ExpectRefused({bystander.address(), "has credentials", "--cluster_spec"});
    EXPECT_FALSE(bystander.WasCalled());
  }
}

}  // namespace
}  // namespace millrace
