// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/credentials.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/notification.h"
#include "base/thread_pool.h"
#include "tests/cluster/certificate_files.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/grpc/rpc_server.h"
#include "transport/methods.h"

namespace millrace {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::CertificateFiles;
using testing::Content;
using IfDown = RpcChannel::IfDown;
using Loaded = std::shared_ptr<const LoadedCredentials>;

constexpr char kPs[] = "/job:ps/replica:0/task:0";
constexpr seconds kReload{1};

Loaded Load(const Credentials& files) {
  StatusOr<Loaded> loaded = LoadedCredentials::Load(files, kReload);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? *loaded : nullptr;
}

class CredentialsTest : public ::testing::Test {
 protected:
  // Answers ControlService/Status with the name of who called.
  void Start(const Credentials& files) {
    server_ = std::make_unique<RpcServer>(&server_pool_, nullptr, RpcLimits(), nullptr,
                                          files.empty() ? nullptr : Load(files));
    server_->AddMethod(methods::kControlStatus, [](ServerCall* call) {
      WireWriter answer;
      answer.AppendBytesField(1, std::string(call->proven_caller()));
      call->Finish(std::move(answer));
    });
    const StatusOr<int> port = server_->Start("127.0.0.1:0");
    ASSERT_TRUE(port.ok()) << port.status();
    address_ = StrCat("127.0.0.1:", *port);
  }

  std::unique_ptr<RpcChannel> Connect(const Credentials& files, const std::string& task = kPs) {
    return std::make_unique<RpcChannel>(address_, kPs, &client_pool_, "",
                                        files.empty() ? nullptr : Load(files), task);
  }
  static Status Call(RpcChannel& channel, std::string* answer = nullptr,
                     IfDown if_down = IfDown::kFail, milliseconds limit = seconds(20)) {
    Notification done;
    Status result;
    const grpc::Slice nothing("");
    channel.Call(methods::kControlStatus, {DeadlineAfter(limit), nullptr},
                 grpc::ByteBuffer(&nothing, 1), if_down,
                 [&](Status status, const grpc::ByteBuffer& bytes) {
                   const ReceivedBytes received(bytes);
                   WireReader reader = received.reader(), body;
                   uint32_t field, type;
                   if (answer != nullptr && status.ok() && reader.ReadTag(&field, &type) &&
                       reader.ReadBody(&body)) {
                     EXPECT_TRUE(body.ReadString(answer, body.remaining()));
                   }
                   result = std::move(status);
                   done.Notify();
                 });
    EXPECT_TRUE(done.WaitUntil(DeadlineAfter(seconds(30))));
    return result;
  }
  Status CallOnce(const Credentials& files, const std::string& task = kPs) {
    return Call(*Connect(files, task));
  }
  // Calls, each over a connection of its own, until one ends as it should.
  bool SoonEnds(const Credentials& files, bool well) {
    for (int i = 0; i < 1200; ++i) {
      if (CallOnce(files).ok() == well) return true;
      std::this_thread::sleep_for(milliseconds(100));
    }
    return false;
  }

  ThreadPool server_pool_{"server", 2}, client_pool_{"client", 2};
  CertificateFiles files_;
  std::unique_ptr<RpcServer> server_;
  std::string address_;
};

TEST_F(CredentialsTest, BothEndsKnowWhoTheOtherIs) {
  Start(files_.Issue(files_.Task("ps", 0)));
  auto worker = Connect(files_.Issue(files_.Task("worker", 1)));
  std::string caller;
  const Status called = Call(*worker, &caller);
  ASSERT_TRUE(called.ok()) << called;
  EXPECT_EQ(caller, "/job:worker/replica:0/task:1");
  // A client names no task, and may take any.
  auto client = Connect(files_.Issue(files_.Client()), "");
  caller = "?";
  EXPECT_TRUE(Call(*client, &caller).ok());
}

TEST_F(CredentialsTest, BothEndsKnowEachOtherByNamesOfHosts) {
  const auto by_dns = [this](const CertificateName& name) {
    return files_.Issue(name, {}, nullptr, NameForm::kDns);
  };
  Start(by_dns(files_.Task("ps", 0)));
  auto worker = Connect(by_dns(files_.Task("worker", 1)));
  std::string caller;
  const Status called = Call(*worker, &caller);
  ASSERT_TRUE(called.ok()) << called;
  EXPECT_EQ(caller, "/job:worker/replica:0/task:1");
  // Either form, at either end.
  EXPECT_TRUE(CallOnce(files_.Issue(files_.Task("worker", 1))).ok());
  EXPECT_TRUE(CallOnce(by_dns(files_.Client()), "").ok());
  Start(by_dns(files_.Task("ps", 1)));
  const Status other = CallOnce(by_dns(files_.Task("worker", 1)));
  EXPECT_EQ(other.code(), StatusCode::kPermissionDenied) << other;
  Start(files_.Issue(files_.Task("ps", 0)));
  EXPECT_TRUE(CallOnce(by_dns(files_.Task("worker", 1))).ok());
  EXPECT_EQ(CallOnce(by_dns({"red", Role::kTask, "worker", 1})).code(),
            StatusCode::kPermissionDenied);
}

TEST_F(CredentialsTest, AnotherTaskAtTheAddressIsNotBelieved) {
  const Credentials worker = files_.Issue(files_.Task("worker", 0));
  for (const CertificateName& answers :
       {files_.Task("ps", 1), files_.Task("worker", 0), files_.Client(), files_.Admin(),
        CertificateName{"red", Role::kTask, "ps", 0}}) {
    Start(files_.Issue(answers));
    auto channel = Connect(worker);
    const Status status = Call(*channel);
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << status;
    EXPECT_NE(Message(status).find(kPs), std::string_view::npos) << status;
    // Waiting for it does not help, and says the same at its end.
    const Status waited = Call(*channel, nullptr, IfDown::kWait, milliseconds(300));
    EXPECT_EQ(waited.code(), StatusCode::kPermissionDenied) << waited;
  }
  const Status status = CallOnce(worker, "/job:ps/replica:0/task:7");
  EXPECT_NE(Message(status).find("red"), std::string_view::npos) << status;
}

TEST_F(CredentialsTest, AServerOfAnotherAuthorityIsNotBelieved) {
  CertificateFiles others;
  Start(others.Issue(others.Task("ps", 0)));
  const Status status = CallOnce(files_.Issue(files_.Task("worker", 0)));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
}

TEST_F(CredentialsTest, EncryptedAndPlainEndsDoNotMeet) {
  Start(files_.Issue(files_.Task("ps", 0)));
  // Who waits for a server that is up learns at once what is missing.
  for (const IfDown if_down : {IfDown::kFail, IfDown::kWait}) {
    auto channel = Connect({});
    for (int call = 0; call < 3; ++call) {
      const Status refused = Call(*channel, nullptr, if_down);
      EXPECT_EQ(refused.code(), StatusCode::kUnauthenticated) << refused;
      EXPECT_NE(Message(refused).find("--tls_cert"), std::string_view::npos) << refused;
    }
  }
  Start({});
  EXPECT_EQ(CallOnce(files_.Issue(files_.Client()), "").code(), StatusCode::kUnavailable);
  EXPECT_TRUE(CallOnce({}).ok());
}

TEST_F(CredentialsTest, NewCertificatesAreUsedWithoutARestart) {
  const Credentials server = files_.Issue(files_.Task("ps", 0));
  const Credentials old_client = files_.Issue(files_.Task("worker", 0));
  CertificateFiles next;
  const Credentials new_client = next.Issue(next.Task("worker", 0));
  Start(server);
  auto kept = Connect(old_client);
  ASSERT_TRUE(Call(*kept).ok());
  ASSERT_FALSE(CallOnce(new_client).ok());
  // The authorities of both first, then a certificate of the new one, then the new one alone.
  const KeyedCertificate own{Content(server.tls_cert), Content(server.tls_key)};
  files_.Replace(server, own, files_.authority().certificate + next.authority().certificate);
  const KeyedCertificate renewed =
      *IssueCertificate(next.authority(), files_.Task("ps", 0), {}, own.key);
  files_.Replace(server, renewed, next.authority().certificate);
  EXPECT_TRUE(SoonEnds(new_client, true));
  EXPECT_TRUE(SoonEnds(old_client, false));
  // What was connected stays so.
  EXPECT_TRUE(Call(*kept).ok());
}

TEST_F(CredentialsTest, ACertificateOfAnotherNameEndsTheServiceUntilItsOwnIsBack) {
  const Credentials server = files_.Issue(files_.Task("ps", 0));
  const Credentials client = files_.Issue(files_.Task("worker", 0));
  Start(server);
  auto kept = Connect(client);
  ASSERT_TRUE(Call(*kept).ok());
  const KeyedCertificate own{Content(server.tls_cert), Content(server.tls_key)};
  const KeyedCertificate other =
      *IssueCertificate(files_.authority(), files_.Task("ps", 1), {}, own.key);
  const auto soon = [&](StatusCode code) {
    Status status;
    for (int i = 0; i < 600; ++i) {
      status = Call(*kept);
      if (status.code() == code) break;
      std::this_thread::sleep_for(milliseconds(100));
    }
    return status;
  };
  files_.Replace(server, other, files_.authority().certificate);
  const Status refused = soon(StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << refused;
  EXPECT_NE(Message(refused).find("/job:ps/task:1"), std::string_view::npos) << refused;
  EXPECT_NE(Message(refused).find(server.tls_cert), std::string_view::npos) << refused;
  files_.Replace(server, own, files_.authority().certificate);
  EXPECT_TRUE(soon(StatusCode::kOk).ok());
}

// What /healthz and gRPC's health service say.
TEST_F(CredentialsTest, AServerWhoseFilesCannotBeUsedSaysSo) {
  const Credentials files = files_.Issue(files_.Task("ps", 0));
  const KeyedCertificate own{Content(files.tls_cert), Content(files.tls_key)};
  const Loaded loaded = Load(files);
  EXPECT_TRUE(loaded->Usable().ok());
  const std::string cas = files_.authority().certificate;
  const auto soon = [&](const std::string& reason) {
    Status usable;
    for (int i = 0; i < 600; ++i) {
      usable = loaded->Usable();
      if (reason.empty() ? usable.ok() : Message(usable).find(reason) != std::string_view::npos) {
        return;
      }
      std::this_thread::sleep_for(milliseconds(100));
    }
    ADD_FAILURE() << usable << "; expected " << reason;
  };
  const auto issue = [&](const CertificateName& name, const Validity& validity) {
    return *IssueCertificate(files_.authority(), name, validity, own.key);
  };
  files_.Replace(files, issue(files_.Task("ps", 1), {}), cas);
  soon("/job:ps/task:1");
  files_.Replace(files, own, cas);
  soon("");
  files_.Replace(files, issue(files_.Task("ps", 0), {-hours(48), -hours(24)}), cas);
  soon("expired");
  EXPECT_EQ(loaded->Usable().code(), StatusCode::kFailedPrecondition);
  files_.Replace(files, own, cas);
  soon("");
  const Credentials other = files_.Issue(files_.Task("ps", 0));
  files_.Replace(files, {own.certificate, Content(other.tls_key)}, cas);
  soon("the key is not that of the certificate");
  files_.Replace(files, own, cas);
  soon("");
}

TEST_F(CredentialsTest, ANewTokenIsUsedWithoutARestart) {
  Credentials files;
  files.token_file = files_.Token("the-first-token-0001");
  Start(files);
  auto channel = Connect(files);
  ASSERT_TRUE(Call(*channel).ok());
  Credentials next;
  next.token_file = files_.Token("the-second-token-002");
  EXPECT_EQ(CallOnce(next).code(), StatusCode::kUnauthenticated);
  ASSERT_EQ(std::rename(next.token_file.c_str(), files.token_file.c_str()), 0);
  next.token_file = files_.Token("the-second-token-002");
  EXPECT_TRUE(SoonEnds(next, true));
  Credentials former;
  former.token_file = files_.Token("the-first-token-0001");
  EXPECT_TRUE(SoonEnds(former, false));
  EXPECT_TRUE(Call(*channel).ok()) << "it shows what is in the file";
}

TEST_F(CredentialsTest, SharesWhatIsLoadedTwice) {
  const Credentials files = files_.Issue(files_.Client());
  const Loaded first = Load(files);
  EXPECT_EQ(first, Load(files));
  EXPECT_NE(first, Load(files_.Issue(files_.Client())));
  EXPECT_EQ(first->own(), files_.Client());
}

TEST_F(CredentialsTest, RefusesFilesThatCannotBeUsedAndNamesThem) {
  const Credentials good = files_.Issue(files_.Client());
  const auto refused = [](const Credentials& files, const std::string& reason) {
    const Status status = LoadedCredentials::Load(files).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_NE(Message(status).find(reason), std::string_view::npos) << status;
  };
  for (std::string Credentials::* part :
       {&Credentials::tls_cert, &Credentials::tls_key, &Credentials::tls_ca}) {
    Credentials some = good;
    (some.*part).clear();
    refused(some, "three files");
    some.*part = "/nowhere/file.pem";
    refused(some, "/nowhere/file.pem");
  }
  Credentials mixed = good;
  mixed.tls_key = files_.Issue(files_.Client()).tls_key;
  refused(mixed, mixed.tls_key);
  refused(files_.Issue(files_.Client(), {-hours(48), -hours(24)}), "expired");
  Credentials token;
  token.token_file = files_.Token("short");
  refused(token, token.token_file);
  EXPECT_EQ(*LoadedCredentials::Load({}), nullptr);
}

TEST_F(CredentialsTest, AKeyThatOthersCanReadIsRefused) {
  const Credentials files = files_.Issue(files_.Client());
  ASSERT_EQ(chmod(files.tls_key.c_str(), 0644), 0);
  const auto loaded = LoadedCredentials::Load(files, kReload);
  EXPECT_TRUE(errors::IsInvalidArgument(loaded.status())) << loaded.status();
  EXPECT_NE(loaded.status().ToString().find("chmod 600 " + files.tls_key), std::string::npos)
      << loaded.status();
  ASSERT_EQ(chmod(files.tls_key.c_str(), 0600), 0);
  EXPECT_TRUE(LoadedCredentials::Load(files, kReload).ok());
}

TEST_F(CredentialsTest, AFileThatNeverEndsOrNeverBeginsIsRefusedAtOnce) {
  CertificateFiles files;
  const Credentials good = files.Issue(files.Task("ps", 0));
  const std::string fifo = files.folder() + "/fifo", large = files.folder() + "/large";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::ofstream(large) << Content(good.tls_ca) << std::string(2 << 20, '\n');
  for (const std::string& path : {fifo, std::string("/dev/zero"), files.folder(), large}) {
    for (std::string Credentials::* const field :
         {&Credentials::tls_cert, &Credentials::tls_key, &Credentials::tls_ca}) {
      Credentials bad = good;
      bad.*field = path;
      const auto loaded = LoadedCredentials::Load(bad, kReload);
      EXPECT_TRUE(errors::IsInvalidArgument(loaded.status())) << path << ": " << loaded.status();
      EXPECT_NE(loaded.status().ToString().find(path), std::string::npos) << loaded.status();
    }
  }
}

TEST_F(CredentialsTest, TheProcessHasThoseThatItWasGiven) {
  const Loaded mine = Load(files_.Issue(files_.Client()));
  SetLoadedCredentials(mine);
  EXPECT_EQ(*DefaultCredentials(), mine);
  EXPECT_EQ(*CredentialsOrDefault({}), mine);
  Credentials token;
  token.token_file = files_.Token("0123456789abcdef");
  EXPECT_EQ((*CredentialsOrDefault(token))->token(), "0123456789abcdef");
  SetLoadedCredentials(nullptr);
  EXPECT_EQ(*DefaultCredentials(), nullptr);
}

}  // namespace
}  // namespace millrace
