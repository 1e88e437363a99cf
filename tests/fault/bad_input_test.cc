// SPDX-License-Identifier: Apache-2.0
// What people get wrong on the command line of mnist_replica: one clear line, no zero exit.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/strings.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/process.h"

namespace millrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Matcher;

void ExpectOneLine(const std::vector<std::string>& flags, int code,
                   const Matcher<std::string>& matcher) {
  SCOPED_TRACE(StrJoin(flags, " "));
  Process program("examples/mnist_replica", flags);
  EXPECT_EQ(program.WaitForEnd(std::chrono::seconds(30)), code);
  const std::string& text = program.output();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_THAT(text, AllOf(::testing::StartsWith("mnist_replica: "), matcher));
}

std::vector<std::string> Worker(const std::vector<std::string>& more) {
  std::vector<std::string> flags = {"--job_name=worker", "--task_index=0"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

TEST(MnistReplicaRefuses, FlagsThatItDoesNotKnow) {
  ExpectOneLine({"--trainsteps=5"}, 2, HasSubstr("--trainsteps"));
}

TEST(MnistReplicaRefuses, ValuesThatMakeNoSense) {
  ExpectOneLine({"--train_steps=0"}, 2, HasSubstr("--train_steps must be at least 1"));
  ExpectOneLine({"--train_steps=many"}, 2, AllOf(HasSubstr("train_steps"), HasSubstr("many")));
  ExpectOneLine({"--learning_rate=-1"}, 2, HasSubstr("--learning_rate must be positive"));
  ExpectOneLine({"--optimizer=adamax"}, 2, HasSubstr("adamax"));
  ExpectOneLine({"--model=rnn"}, 2, HasSubstr("rnn"));
}

TEST(MnistReplicaRefuses, ATaskWithoutJobOrIndex) {
  ExpectOneLine({"--job_name=worker"}, 2, HasSubstr("task_index"));
  ExpectOneLine({"--job_name=chief", "--task_index=0"}, 2, HasSubstr("'chief'"));
  ExpectOneLine({"--existing_servers"}, 2, HasSubstr("job_name"));
}

TEST(MnistReplicaRefuses, MalformedHostLists) {
  ExpectOneLine(Worker({"--ps_hosts=127.0.0.1"}), 1,
                AllOf(HasSubstr("--ps_hosts"), HasSubstr("127.0.0.1")));
  ExpectOneLine(Worker({"--ps_hosts=127.0.0.1:99999"}), 1,
                AllOf(HasSubstr("--ps_hosts"), HasSubstr("99999")));
  ExpectOneLine(Worker({"--worker_hosts=127.0.0.1:1,,127.0.0.1:2"}), 1,
                HasSubstr("--worker_hosts"));
}

TEST(MnistReplicaRefuses, OneAddressForTwoTasks) {
  ExpectOneLine(
      Worker({"--ps_hosts=127.0.0.1:4001", "--worker_hosts=127.0.0.1:4002,127.0.0.1:4002"}), 1,
      HasSubstr("127.0.0.1:4002"));
  ExpectOneLine(Worker({"--ps_hosts=127.0.0.1:4001", "--worker_hosts=127.0.0.1:4001"}), 1,
                HasSubstr("127.0.0.1:4001"));
}

TEST(MnistReplicaRefuses, AnIndexOutsideItsJob) {
  ExpectOneLine({"--job_name=worker", "--task_index=7", "--ps_hosts=127.0.0.1:4001",
                 "--worker_hosts=127.0.0.1:4002"},
                1, AllOf(HasSubstr("--task_index"), HasSubstr("7")));
}

TEST(MnistReplicaRefuses, APortThatIsTaken) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string taken = StrCat("127.0.0.1:", ntohs(address.sin_port));
  Process program("examples/mnist_replica",
                  {"--job_name=ps", "--task_index=0", "--ps_hosts=" + taken,
                   StrCat("--worker_hosts=127.0.0.1:", FreePorts(1)[0])});
  EXPECT_EQ(program.WaitForEnd(std::chrono::seconds(30)), 1);
  EXPECT_THAT(program.output(), HasSubstr(taken));
  close(fd);
}

// --- Data -----------------------------------------------------------------------------------
class MnistReplicaRefusesData : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) / ("idx_" + std::to_string(getpid()));
    fs::create_directories(dir_);
    Write("train-images-idx3-ubyte", Idx({6000, 28, 28}));
    Write("train-labels-idx1-ubyte", Idx({6000}));
    Write("t10k-images-idx3-ubyte", Idx({10, 28, 28}));
    Write("t10k-labels-idx1-ubyte", Idx({10}));
  }
  void TearDown() override { fs::remove_all(dir_); }

  // An idx file of zeros.
  static std::string Idx(const std::vector<int>& dims) {
    std::string bytes = {0, 0, 8, static_cast<char>(dims.size())};
    std::size_t count = 1;
    for (const int dim : dims) {
      for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(dim >> shift));
      count *= static_cast<std::size_t>(dim);
    }
    return bytes + std::string(count, '\0');
  }
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
  }
  // Checking the data, and training on it, refuse it alike. Nothing is absent, so nothing is
  // fetched.
  void ExpectRefusal(const Matcher<std::string>& matcher) {
    ExpectOneLine({"--data_dir=" + dir_.string(), "--download_only", kNowhere}, 1, matcher);
    ExpectOneLine({"--data_dir=" + dir_.string(), "--train_steps=1"}, 1, matcher);
  }
  static constexpr const char* kNowhere = "--data_url=file:///there/is/no/such/folder";
  fs::path dir_;
};

TEST_F(MnistReplicaRefusesData, NothingThatIsComplete) {
  Process program("examples/mnist_replica",
                  {"--data_dir=" + dir_.string(), "--download_only", kNowhere});
  EXPECT_EQ(program.WaitForEnd(std::chrono::seconds(30)), 0) << program.output();
}

TEST_F(MnistReplicaRefusesData, ThatIsMissing) {
  fs::remove(dir_ / "t10k-images-idx3-ubyte");
  ExpectOneLine({"--data_dir=" + dir_.string(), "--train_steps=1"}, 1,
                HasSubstr("t10k-images-idx3-ubyte"));
}

TEST_F(MnistReplicaRefusesData, ThatCannotBeFetched) {
  fs::remove(dir_ / "t10k-images-idx3-ubyte");
  const std::string closed = StrCat("http://127.0.0.1:", FreePorts(1)[0]);
  Process program("examples/mnist_replica", {"--data_dir=" + dir_.string(), "--download_only",
                                             "--data_url=" + closed + "/mnist"});
  EXPECT_EQ(program.WaitForEnd(std::chrono::seconds(60)), 1);
  EXPECT_THAT(program.output(),
              AllOf(HasSubstr("mnist_replica: UNAVAILABLE: " + closed +
                              "/mnist/t10k-images-idx3-ubyte.gz could not be fetched: curl: (7)"),
                    HasSubstr("--data_url")));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 3);
}

TEST_F(MnistReplicaRefusesData, NothingThatCanBeFetched) {
  const fs::path source = dir_ / "source", target = dir_ / "new" / "target";
  fs::create_directories(source);
  for (const std::string name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                 "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    std::ifstream in(dir_ / name, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    const gzFile file = gzopen((source / (name + ".gz")).c_str(), "wb");
    ASSERT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
              static_cast<int>(bytes.size()));
    gzclose(file);
  }
  for (const bool again : {false, true}) {
    Process program("examples/mnist_replica",
                    {"--data_dir=" + target.string(), "--download_only",
                     again ? kNowhere : "--data_url=file://" + source.string()});
    EXPECT_EQ(program.WaitForEnd(std::chrono::seconds(60)), 0) << program.output();
    EXPECT_THAT(program.output(), HasSubstr("are complete"));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(target), fs::directory_iterator()), 4);
}

TEST_F(MnistReplicaRefusesData, ThatIsTruncated) {
  Write("train-labels-idx1-ubyte", Idx({6000}).substr(0, 4000));
  ExpectRefusal(AllOf(HasSubstr("train-labels-idx1-ubyte"), HasSubstr("truncated")));
}

TEST_F(MnistReplicaRefusesData, ThatIsGarbled) {
  Write("train-images-idx3-ubyte", "these are no images, whatever their name says");
  ExpectRefusal(AllOf(HasSubstr("train-images-idx3-ubyte"), HasSubstr("not an idx file")));
}

}  // namespace
}  // namespace millrace::testing
