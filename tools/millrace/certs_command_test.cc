// SPDX-License-Identifier: Apache-2.0
// Runs the program itself: certificates as people make them.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/random.h"
#include "base/strings.h"
#include "tests/cluster/process.h"
#include "transport/security/certificates.h"
#include "transport/security/secret.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using testing::Process;

constexpr char kCluster[] = "ps|127.0.0.1:7000,worker|127.0.0.1:7001;127.0.0.1:7002";

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int ModeOf(const std::string& path) {
  struct stat file{};
  return stat(path.c_str(), &file) == 0 ? static_cast<int>(file.st_mode & 0777) : -1;
}

class CertsCommand : public ::testing::Test {
 protected:
  // What it printed.
  std::string Run(std::vector<std::string> arguments, int code = 0) {
    arguments.insert(arguments.begin(), "certs");
    Process process("tools/millrace", arguments);
    EXPECT_EQ(process.WaitForEnd(std::chrono::seconds(60)), code) << process.output();
    return process.output();
  }
  std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }
  KeyedCertificate Pair(const std::string& stem) const {
    return {Content(PathOf(stem + ".pem")), Content(PathOf(stem + ".key"))};
  }
  void ExpectGood(const std::string& stem, const std::string& uri) {
    const StatusOr<CertificateName> name = CheckCertificate(Pair(stem), Content(PathOf("ca.pem")));
    ASSERT_TRUE(name.ok()) << stem << ": " << name.status();
    EXPECT_EQ(name->ToUri(), uri);
    EXPECT_EQ(ModeOf(PathOf(stem + ".key")), 0600);
  }

  const std::string folder_ = StrCat(::testing::TempDir(), "/certs_", Hex16(RandomId()));
};

TEST_F(CertsCommand, MakesWhatEveryProcessNeeds) {
  const std::string text =
      Run({kCluster, "--out=" + folder_, "--cluster=blue", "--days=2", "--token"});
  EXPECT_NE(text.find("millrace://blue/job:worker/task:1"), std::string::npos) << text;
  ExpectGood("ps-0", "millrace://blue/job:ps/task:0");
  ExpectGood("worker-0", "millrace://blue/job:worker/task:0");
  ExpectGood("worker-1", "millrace://blue/job:worker/task:1");
  ExpectGood("client", "millrace://blue/client");
  ExpectGood("admin", "millrace://blue/admin");
  EXPECT_EQ(ModeOf(PathOf("ca.key")), 0600);
  EXPECT_EQ(ModeOf(folder_), 0700);
  const auto end = EndOfCertificate(Pair("ps-0").certificate);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_LE(*end - std::chrono::system_clock::now(), std::chrono::hours(48));
  EXPECT_TRUE(ReadTokenFile(PathOf("token")).ok());
  // Nothing else, and nothing half written.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 13);
}

TEST_F(CertsCommand, RenewsCertificatesAndKeepsTheRest) {
  Run({kCluster, "--out=" + folder_, "--cluster=blue", "--token"});
  const KeyedCertificate before = Pair("ps-0");
  const std::string token = Content(PathOf("token")), authority = Content(PathOf("ca.pem"));
  Run({"ps|127.0.0.1:7000,extra|127.0.0.1:7009", "--out=" + folder_, "--token"});
  const KeyedCertificate after = Pair("ps-0");
  EXPECT_EQ(after.key, before.key);
  EXPECT_NE(after.certificate, before.certificate);
  EXPECT_EQ(Content(PathOf("token")), token);
  EXPECT_EQ(Content(PathOf("ca.pem")), authority);
  ExpectGood("ps-0", "millrace://blue/job:ps/task:0");
  ExpectGood("extra-0", "millrace://blue/job:extra/task:0");
}

TEST_F(CertsCommand, SaysWhatIsWrong) {
  Run({}, 2);
  Run({kCluster, "--days=0"}, 2);
  Run({kCluster, "--cluster=a b"}, 2);
  std::string text = Run({"ps", "--out=" + folder_}, 1);
  EXPECT_NE(text.find("millrace certs: "), std::string::npos) << text;
  text = Run({"p/../../s|127.0.0.1:7000", "--out=" + folder_}, 1);
  text = Run({kCluster, "--out=/dev/null/certs"}, 1);
  EXPECT_NE(text.find("/dev/null/certs"), std::string::npos) << text;
  Run({kCluster, "--out=" + folder_});
  fs::remove(PathOf("ca.key"));
  text = Run({kCluster, "--out=" + folder_}, 1);
  EXPECT_NE(text.find("only one of ca.pem and ca.key"), std::string::npos) << text;
  text = Run({"--help"});
  EXPECT_NE(text.find("Example:"), std::string::npos) << text;
}

// As docs/security.md says it: two tasks, and what each shows.
TEST_F(CertsCommand, StartsAServerThatProvesWhichTaskItIs) {
  const std::string cluster = "ps|127.0.0.1:0";
  Run({cluster, "--out=" + folder_});
  const auto serve = [&](const std::string& stem) {
    return std::vector<std::string>{
        "server", "--cluster_spec=" + cluster, "--tls_cert=" + PathOf(stem + ".pem"),
        "--tls_key=" + PathOf(stem + ".key"), "--tls_ca=" + PathOf("ca.pem")};
  };
  Process good("tools/millrace", serve("ps-0"));
  EXPECT_TRUE(good.WaitForOutput("listening on", std::chrono::seconds(60))) << good.output();
  good.Signal(SIGTERM);
  EXPECT_EQ(good.WaitForEnd(std::chrono::seconds(60)), 0) << good.output();
  Process wrong("tools/millrace", serve("client"));
  EXPECT_EQ(wrong.WaitForEnd(std::chrono::seconds(60)), 1);
  EXPECT_NE(wrong.output().find("millrace:///client"), std::string::npos) << wrong.output();
}

}  // namespace
}  // namespace millrace
