// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/refusal_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/errors.h"
#include "base/notification.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "tests/cluster/certificate_files.h"
#include "transport/grpc/credentials.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/grpc/rpc_server.h"
#include "transport/methods.h"

namespace millrace {
namespace {

using std::chrono::seconds;
using testing::CertificateFiles;

constexpr char kPs[] = "/job:ps/replica:0/task:0";

std::string Nobody() { return "10.0.0.1:2222"; }

TEST(RefusalLogTest, AFloodIsCountedInsteadOfWritten) {
  RefusalLog log;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 100'000; ++i) {
    log.Call(Nobody, "/a.Service/Method", 0xab, errors::PermissionDenied("not\nyou \x1b[31m"));
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  const auto lines = std::count(said.begin(), said.end(), '\n');
  EXPECT_GE(lines, RefusalLog::kMostLines);
  EXPECT_LT(lines, 10 * RefusalLog::kMostLines) << "however slow this machine is";
  EXPECT_NE(said.find("refused a call of /a.Service/Method by 10.0.0.1:2222 "
                      "[request 00000000000000ab]: PERMISSION_DENIED: not you  [31m"),
            std::string::npos)
      << said;
  // The next line says how many had none.
  std::string next;
  for (int i = 0; i < 600 && next.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::testing::internal::CaptureStderr();
    log.Connection("10.0.0.2:2222", "it came without TLS");
    next = ::testing::internal::GetCapturedStderr();
  }
  EXPECT_NE(next.find("refused a connection of 10.0.0.2:2222: it came without TLS ("),
            std::string::npos)
      << next;
  EXPECT_NE(next.find(" refusals before it were not logged)"), std::string::npos) << next;
}

// A server, and what it logs while somebody calls it.
class RefusedCallsTest : public ::testing::Test {
 protected:
  void Start(const Credentials& files) {
    server_ = std::make_unique<RpcServer>(&server_pool_, nullptr, RpcLimits(), nullptr,
                                          *LoadedCredentials::Load(files));
    for (const char* method : {methods::kMasterRunStep, methods::kWorkerRunGraph}) {
      server_->AddMethod(method, [](ServerCall* call) { call->Finish(OkStatus()); });
    }
    const StatusOr<int> port = server_->Start("127.0.0.1:0");
    ASSERT_TRUE(port.ok()) << port.status();
    address_ = StrCat("127.0.0.1:", *port);
  }

  // The error of a call, and into `log` what is said meanwhile and until `expected` is.
  Status Refused(const Credentials& files, const char* method, const std::string& expected,
                 std::string* log) {
    ::testing::internal::CaptureStderr();
    RpcChannel channel(address_, kPs, &client_pool_, "", *LoadedCredentials::Load(files), "");
    Notification done;
    Status result;
    const grpc::Slice nothing("");
    channel.Call(method, {DeadlineAfter(seconds(20)), nullptr}, grpc::ByteBuffer(&nothing, 1),
                 RpcChannel::IfDown::kFail, [&](Status status, const grpc::ByteBuffer&) {
                   result = std::move(status);
                   done.Notify();
                 });
    EXPECT_TRUE(done.WaitUntil(DeadlineAfter(seconds(30))));
    *log = ::testing::internal::GetCapturedStderr();
    // With TLS 1.3 the client may hear of it before the server says so.
    for (int i = 0; i < 300 && log->find(expected) == std::string::npos; ++i) {
      ::testing::internal::CaptureStderr();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      *log += ::testing::internal::GetCapturedStderr();
    }
    EXPECT_FALSE(result.ok());
    EXPECT_NE(log->find(expected), std::string::npos) << *log << "\n" << result;
    EXPECT_NE(log->find("127.0.0.1:"), std::string::npos) << *log;
    return result;
  }

  ThreadPool server_pool_{"server", 2}, client_pool_{"client", 2};
  CertificateFiles files_;
  std::unique_ptr<RpcServer> server_;
  std::string address_;
};

TEST_F(RefusedCallsTest, ACertificateWithoutTheRightIsNamedWithMethodRuleAndRequest) {
  Start(files_.Issue(files_.Task("ps", 0)));
  std::string log;
  const Status refused =
      Refused(files_.Issue(files_.Admin()), methods::kMasterRunStep,
              "refused a call of /tensorflow.MasterService/RunStep by 127.0.0.1:", &log);
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << refused;
  EXPECT_NE(log.find("(certificate millrace://blue/admin)"), std::string::npos) << log;
  EXPECT_NE(log.find("which is for tasks and clients"), std::string::npos) << log;
  // The error has the name that the line has.
  const std::string text(Message(refused));
  const std::size_t at = text.find(" [request ");
  ASSERT_NE(at, std::string::npos) << refused;
  EXPECT_NE(log.find(text.substr(at, text.find(']', at) + 1 - at)), std::string::npos) << log;
  const Status client =
      Refused(files_.Issue(files_.Client()), methods::kWorkerRunGraph,
              "refused a call of /tensorflow.WorkerService/RunGraph by 127.0.0.1:", &log);
  EXPECT_EQ(client.code(), StatusCode::kPermissionDenied) << client;
  EXPECT_NE(log.find("(certificate millrace://blue/client)"), std::string::npos) << log;
  EXPECT_NE(log.find("which is for tasks"), std::string::npos) << log;
}

TEST_F(RefusedCallsTest, AWrongTokenIsALine) {
  Credentials own, other;
  own.token_file = files_.Token("the-first-token-0001");
  other.token_file = files_.Token("the-second-token-002");
  Start(own);
  std::string log;
  const Status wrong =
      Refused(other, methods::kMasterRunStep,
              "refused a call of /tensorflow.MasterService/RunStep by 127.0.0.1:", &log);
  EXPECT_EQ(wrong.code(), StatusCode::kUnauthenticated) << wrong;
  EXPECT_NE(log.find("UNAUTHENTICATED"), std::string::npos) << log;
  EXPECT_EQ(log.find("the-second"), std::string::npos) << "what may be a secret elsewhere";
}

TEST_F(RefusedCallsTest, AForeignCertificateAndNoTlsAreLines) {
  Start(files_.Issue(files_.Task("ps", 0)));
  CertificateFiles others;
  // It believes in the server's authority, so that it is the server that refuses.
  Credentials foreign = others.Issue(others.Client());
  const Credentials own = files_.Issue(files_.Client());
  files_.Replace(foreign, {testing::Content(foreign.tls_cert), testing::Content(foreign.tls_key)},
                 others.authority().certificate + files_.authority().certificate);
  std::string log;
  const Status unknown =
      Refused(foreign, methods::kMasterRunStep, "its TLS handshake failed", &log);
  EXPECT_EQ(unknown.code(), StatusCode::kUnavailable) << unknown;
  EXPECT_NE(log.find("--tls_ca"), std::string::npos) << log;
  const Status plain =
      Refused({}, methods::kMasterRunStep, "it came without TLS: give the caller", &log);
  EXPECT_EQ(plain.code(), StatusCode::kUnauthenticated) << plain;
}

}  // namespace
}  // namespace millrace
