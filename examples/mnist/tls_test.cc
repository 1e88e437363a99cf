// SPDX-License-Identifier: Apache-2.0
// Trains over TLS, as people would: certificates from `millrace certs`, one process per task.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/strings.h"
#include "tests/cluster/process.h"

namespace millrace::mnist {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Process;

constexpr seconds kLimit{100};

class MnistTls : public ::testing::Test {
 protected:
  void SetUp() override {
    Process certs("tools/millrace", {"certs", "ps|h:1,worker|h:2;h:3", "--out=" + folder_,
                                     "--cluster=mnist", "--token"});
    ASSERT_EQ(certs.WaitForEnd(kLimit), 0) << certs.output();
  }
  // The flags of a task whose files are called so; {job} and {task} are the program's to replace.
  std::vector<std::string> Files(const std::string& stem) const {
    return {StrCat("--tls_cert=", folder_, "/", stem, ".pem"),
            StrCat("--tls_key=", folder_, "/", stem, ".key"),
            StrCat("--tls_ca=", folder_, "/ca.pem")};
  }
  static std::vector<std::string> Training(const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--train_steps=20", "--batch_size=10", "--hidden_units=8",
                                    "--quiet"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  const std::string folder_ = StrCat(::testing::TempDir(), "/mnist_tls_", Hex16(RandomId()));
};

TEST_F(MnistTls, TrainsWithACertificateForEachTask) {
  for (const char* how : {"--nosync_replicas", "--sync_replicas"}) {
    std::vector<std::string> arguments = Training(Files("{job}-{task}"));
    arguments.push_back(how);
    Process job("examples/mnist_replica", arguments);
    EXPECT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("Test accuracy"));
  }
}

TEST_F(MnistTls, TrainsWithCertificatesAndAToken) {
  std::vector<std::string> arguments = Training(Files("{job}-{task}"));
  arguments.push_back("--token_file=" + folder_ + "/token");
  Process job("examples/mnist_replica", arguments);
  EXPECT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
}

TEST_F(MnistTls, TrainsWithATokenAlone) {
  Process job("examples/mnist_replica", Training({"--token_file=" + folder_ + "/token"}));
  EXPECT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
}

TEST_F(MnistTls, DoesNotTrainWithTheCertificateOfAnotherTask) {
  Process job("examples/mnist_replica", Training(Files("worker-0")));
  EXPECT_EQ(job.WaitForEnd(kLimit), 1) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("was given the certificate of"));
  EXPECT_THAT(job.output(), Not(HasSubstr("Test accuracy")));
}

// Programs that know nothing of certificates: `millrace run` tells them by their environment.
TEST_F(MnistTls, RunGivesEachTaskItsOwn) {
  std::vector<std::string> arguments = {"run", "--ps=1", "--workers=2"};
  for (const std::string& file : Files("{job}-{task}")) arguments.push_back(file);
  for (const char* word : {"examples/mnist_replica", "--job_name={job}", "--task_index={task}",
                           "--ps_hosts={ps_hosts}", "--worker_hosts={worker_hosts}"}) {
    arguments.push_back(word);
  }
  for (const std::string& flag : Training({})) arguments.push_back(flag);
  Process job("tools/millrace", arguments);
  EXPECT_EQ(job.WaitForEnd(kLimit), 0) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("Test accuracy"));
}

}  // namespace
}  // namespace millrace::mnist
