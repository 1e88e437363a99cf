// SPDX-License-Identifier: Apache-2.0
// Programs of ranks as users start them: a process for each rank, which the environment tells who
// it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/strings.h"
#include "tests/cluster/process.h"

namespace millrace::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr char kProgram[] = "examples/ring_mnist";

// True if a server could listen on the port now, at any address.
bool IsFree(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) return false;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return bound;
}

// The first of `count` ports in a row: ranks listen on those behind the one that is said. None of
// those that connections are given, so that nobody else has it when its rank comes.
int FirstOfFreePorts(int count) {
  std::random_device random;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const int first = std::uniform_int_distribution<int>(10'000, 32'000)(random);
    int free = 0;
    while (free < count && IsFree(first + free)) ++free;
    if (free == count) return first;
  }
  ADD_FAILURE() << "no " << count << " free ports in a row";
  return 0;
}

// One rank of two nodes with two processes each, as torchrun says it. Nodes are addresses of the
// loopback, so that ports may be the same.
std::unique_ptr<Process> StartRank(int rank, int port, const std::vector<std::string>& flags,
                                   const std::string& program = kProgram) {
  setenv("RANK", StrCat(rank).c_str(), 1);
  setenv("WORLD_SIZE", "4", 1);
  setenv("LOCAL_RANK", StrCat(rank % 2).c_str(), 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", StrCat(port).c_str(), 1);
  setenv("MILLRACE_HOSTS", "127.0.0.1,127.0.0.2", 1);
  auto process = std::make_unique<Process>(program, flags);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                           "MASTER_PORT", "MILLRACE_HOSTS"}) {
    unsetenv(name);
  }
  return process;
}

double TestLossOf(const std::string& output) {
  const std::string label = "test loss ";
  const size_t at = output.find(label);
  return at == std::string::npos ? std::nan("") : std::atof(output.c_str() + at + label.size());
}

TEST(RingMnist, EndsWithFourRanksAtTheLossOfOneWithFourTimesTheBatch) {
  const int port = FirstOfFreePorts(3);
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(
        StartRank(rank, port, {"--steps=60", "--batch_size=8", "--learning_rate=0.001"}));
  }
  Process alone(kProgram, {"--steps=60", "--batch_size=32", "--learning_rate=0.001"});
  EXPECT_EQ(alone.WaitForEnd(seconds(120)), 0) << alone.output();
  const double loss = TestLossOf(alone.output());
  EXPECT_LT(loss, 2.0);
  for (int rank = 0; rank < 4; ++rank) {
    Process& process = *ranks[static_cast<size_t>(rank)];
    ASSERT_EQ(process.WaitForEnd(seconds(120)), 0) << process.output();
    EXPECT_THAT(process.output(),
                HasSubstr(StrCat("rank ", rank, " of 4, local rank ", rank % 2, " of 2: ")));
    // Sums of floats in another order, 60 times.
    EXPECT_NEAR(TestLossOf(process.output()), loss, 1e-3 * loss);
    EXPECT_EQ(TestLossOf(process.output()), TestLossOf(ranks[0]->output()));
  }
}

TEST(RingMnist, NamesARankThatIsKilled) {
  const int port = FirstOfFreePorts(3);
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(StartRank(rank, port, {"--steps=1000000", "--timeout=10"}));
  }
  ASSERT_TRUE(ranks[0]->WaitForOutput("step 50 ", seconds(120))) << ranks[0]->output();
  ranks[2]->Signal(SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  for (const int rank : {0, 1, 3}) {
    Process& process = *ranks[static_cast<size_t>(rank)];
    EXPECT_EQ(process.WaitForEnd(seconds(120)), 1) << process.output();
    EXPECT_THAT(process.output(), HasSubstr("rank 2 (/job:worker/replica:0/task:2)"));
  }
  // The deadline, and time for two loaded cores.
  EXPECT_LT(std::chrono::steady_clock::now() - killed, seconds(100));
}

TEST(RingMnist, IsRunByMillraceRun) {
  Process run("tools/millrace", {"run", "--workers=2", "--", kProgram, "--steps=5"});
  EXPECT_EQ(run.WaitForEnd(seconds(120)), 0) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("rank 0 of 2, local rank 0 of 2: test loss"));
  EXPECT_THAT(run.output(), HasSubstr("rank 1 of 2, local rank 1 of 2: test loss"));
}

// Rank r makes r + 2 steps, each of which moves the variable by one for every rank that trains.
TEST(Join, LetsRanksWithoutDataStandAside) {
  const int port = FirstOfFreePorts(3);
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(StartRank(rank, port, {}, "tests/ranks/uneven_ranks"));
  }
  const char* const wanted[] = {"made 2 steps, b is -8, rank 3", "made 3 steps, b is -11, rank 3",
                                "made 4 steps, b is -13, rank 3", "made 5 steps, b is -14, rank 3"};
  for (int rank = 0; rank < 4; ++rank) {
    Process& process = *ranks[static_cast<size_t>(rank)];
    EXPECT_EQ(process.WaitForEnd(seconds(120)), 0) << process.output();
    EXPECT_THAT(process.output(), HasSubstr(wanted[rank]));
  }
}

}  // namespace
}  // namespace millrace::testing
