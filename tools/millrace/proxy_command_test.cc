// SPDX-License-Identifier: Apache-2.0
// Runs the program itself: a client that knows no certificates, at a task that asks for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/strings.h"
#include "millrace/core.h"
#include "tests/cluster/process.h"

namespace millrace {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::Process;

constexpr seconds kLimit(60);

class ProxyCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string cluster = "ps|127.0.0.1:0";
    Process certs("tools/millrace", {"certs", cluster, "--out=" + folder_, "--cluster=blue"});
    ASSERT_EQ(certs.WaitForEnd(kLimit), 0) << certs.output();
    server_ = Begin({"server", "--cluster_spec=" + cluster}, "ps-0", "listening on ");
    ASSERT_FALSE(server_.address.empty());
  }

  struct Started {
    std::unique_ptr<Process> process;
    std::string address;  // "": it did not come so far
  };
  // Starts the program with the certificate; it serves at the address after `phrase` in its log.
  Started Begin(std::vector<std::string> arguments, const std::string& stem,
                const std::string& phrase) {
    const Credentials files = Files(stem);
    arguments.insert(arguments.end(), {"--tls_cert=" + files.tls_cert, "--tls_key=" + files.tls_key,
                                       "--tls_ca=" + files.tls_ca});
    Started started{std::make_unique<Process>("tools/millrace", arguments), ""};
    if (!started.process->WaitForOutput(phrase, kLimit)) {
      ADD_FAILURE() << started.process->output();
      return started;
    }
    // A line of the log is one write.
    const std::string& output = started.process->output();
    const std::size_t begin = output.find(phrase) + phrase.size();
    started.address = output.substr(begin, output.find_first_of(" \n", begin) - begin);
    return started;
  }
  Started BeginProxy() {
    return Begin({"proxy", "grpc://" + server_.address}, "client", "passing calls to grpc://");
  }
  Credentials Files(const std::string& stem) const {
    Credentials files;
    files.tls_cert = StrCat(folder_, "/", stem, ".pem");
    files.tls_key = StrCat(folder_, "/", stem, ".key");
    files.tls_ca = folder_ + "/ca.pem";
    return files;
  }

  // A step at the address.
  static Status RunAt(const std::string& address, const Credentials& credentials = {}) {
    Graph graph;
    const Output x = Placeholder(graph.root(), kFloat, PartialShape({}));
    const Output y = ops::Neg(graph.root(), x);
    SessionOptions options;
    options.target = "grpc://" + address;
    options.credentials = credentials;
    StatusOr<Session> session = Session::Create(graph, options);
    if (!session.ok()) return session.status();
    const auto values = session->Run({{x, Tensor::Scalar(2.0f)}}, {y});
    if (values.ok()) {
      EXPECT_EQ((*values)[0].scalar<float>(), -2);
    }
    return values.status();
  }

  const std::string folder_ = StrCat(::testing::TempDir(), "/proxy_", Hex16(RandomId()));
  Started server_;
};

TEST_F(ProxyCommand, LetsAClientInThatShowsNothingAndNoFurtherThanItsOwnCertificate) {
  const Status direct = RunAt(server_.address);
  EXPECT_EQ(direct.code(), StatusCode::kUnauthenticated) << direct;
  const Status shown = RunAt(server_.address, Files("client"));
  EXPECT_TRUE(shown.ok()) << shown;
  Started proxy = BeginProxy();
  ASSERT_FALSE(proxy.address.empty());
  const Status through = RunAt(proxy.address);
  EXPECT_TRUE(through.ok()) << through;
  Process page("tools/millrace", {"page", "grpc://" + proxy.address, "/statusz"});
  EXPECT_EQ(page.WaitForEnd(kLimit), 1);
  EXPECT_THAT(page.output(), HasSubstr("millrace://blue/client"));
  proxy.process->Signal(SIGTERM);
  EXPECT_EQ(proxy.process->WaitForEnd(kLimit), 0) << proxy.process->output();
}

TEST_F(ProxyCommand, RefusesWhatWouldLetOthersIn) {
  const auto said = [](const std::vector<std::string>& arguments, int code) {
    Process process("tools/millrace", arguments);
    EXPECT_EQ(process.WaitForEnd(kLimit), code) << process.output();
    return process.output();
  };
  const Credentials client = Files("client");
  const std::vector<std::string> files = {
      "--tls_cert=" + client.tls_cert, "--tls_key=" + client.tls_key, "--tls_ca=" + client.tls_ca};
  EXPECT_THAT(said({"proxy", "grpc://" + server_.address}, 2), HasSubstr("--tls_cert"));
  EXPECT_THAT(said({"proxy", "grpc://" + server_.address, files[0], files[1]}, 2),
              HasSubstr("--tls_ca"));
  EXPECT_THAT(said({"proxy", server_.address, files[0], files[1], files[2]}, 2),
              HasSubstr("grpc://"));
  EXPECT_THAT(said({"proxy", "grpc://" + server_.address, "--listen=0.0.0.0:0", files[0], files[1],
                    files[2]},
                   1),
              HasSubstr("loopback"));
}

}  // namespace
}  // namespace millrace
