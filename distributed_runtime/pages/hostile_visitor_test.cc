// SPDX-License-Identifier: Apache-2.0
// Steps of a server while its pages are attacked, beside steps while somebody else is.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <deque>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/file_limit.h"
#include "base/strings.h"
#include "distributed_runtime/pages/pages_test_util.h"
#include "observe/process.h"
#include "observe/visitor_testlib.h"

namespace millrace {
namespace {

constexpr int kConnections = 1000;
constexpr int kRounds = 9;
constexpr std::chrono::milliseconds kWindow(250);
constexpr std::chrono::seconds kLimit(120);  // of whatever is waited for

// A process of its own, so that neither its memory nor its locks are the task's: it holds 1000
// connections and makes another one every quarter of a millisecond, the oldest going.
class Crowd {
 public:
  // Whom it visits: nobody, itself (the same work, which nobody else has to do with), or a port.
  static constexpr int kNobody = 0, kItself = -1, kEnd = -2;

  Crowd() {
    void* const memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared;
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) Main();
    _exit(0);
  }
  ~Crowd() {
    shared_->visited.store(kEnd);
    waitpid(pid_, nullptr, 0);
    munmap(shared_, sizeof(Shared));
  }

  // Returns once as many as there can be have come. False if they have not in time.
  bool Visit(int whom) {
    const int before = came();
    shared_->visited.store(whom);
    const auto limit = std::chrono::steady_clock::now() + kLimit;
    // Those that are on their way may still be for the one before.
    while (whom != kNobody && came() - before <= kConnections) {
      if (std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }
  int came() const { return shared_->came.load(); }

 private:
  struct Shared {
    std::atomic<int> visited{kNobody}, came{0};
  };
  static_assert(std::atomic<int>::is_always_lock_free);

  // What the n-th one says to begin with; nobody reads anything, and none says more.
  static const std::string& SaidBy(int n) {
    static const std::string said[] = {
        "",  // nothing at all
        "GET /statusz HTTP/1.1\r\nX-Slow: ", "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /stepz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        StrCat("GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: ", std::string(1 << 20, 'x'))};
    return said[n % 5];
  }

  void Main() {
    std::deque<int> held;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    const sockaddr_in own = Listen(listener);
    int whom = kNobody;
    while ((whom = shared_->visited.load()) != kEnd) {
      std::this_thread::sleep_for(std::chrono::microseconds(250));
      if (whom == kNobody) {
        for (const int fd : held) close(fd);
        held.clear();
        continue;
      }
      sockaddr_in address = own;
      if (whom != kItself) address.sin_port = htons(static_cast<uint16_t>(whom));
      const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
      if (fd < 0) continue;
      held.push_back(fd);
      const int small = 4096;  // what is not read soon holds up whoever writes it
      setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
      // On loopback a connection is there at once, or does not fit into the queue.
      (void)connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
      const std::string& said = SaidBy(shared_->came.fetch_add(1));
      (void)!send(fd, said.data(), said.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (whom == kItself) {
        if (const int other = accept(listener, nullptr, nullptr); other >= 0) held.push_back(other);
      }
      while (held.size() > kConnections) {
        close(held.front());
        held.pop_front();
      }
    }
  }
  static sockaddr_in Listen(int fd) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    (void)bind(fd, reinterpret_cast<sockaddr*>(&address), size);
    (void)listen(fd, 64);
    (void)getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    return address;
  }

  Shared* shared_ = nullptr;
  pid_t pid_ = -1;
};

class HostileVisitorTest : public PagesTest {
 protected:
  void SetUp() override {
    RaiseFileLimit();
    crowd_ = std::make_unique<Crowd>();  // while this process has one thread
    PagesTest::SetUp();
  }

  // Runs steps for so long. What one took in the middle does not see what happens seldom, and what
  // they took together, the inverse of their rate, sees everything.
  struct Nanos {
    double median, mean;
  };
  Nanos TimeNullSteps(std::chrono::milliseconds length) {
    std::vector<int64_t> times;
    const int64_t first = SteadyNanos();
    const auto end = std::chrono::steady_clock::now() + length;
    while (times.empty() || std::chrono::steady_clock::now() < end) {
      const int64_t begin = SteadyNanos();
      const auto value = session_->Run({}, {"near"});
      times.push_back(SteadyNanos() - begin);
      EXPECT_TRUE(value.ok()) << value.status();
    }
    const auto all = static_cast<double>(SteadyNanos() - first);
    const auto count = static_cast<double>(times.size());
    return {Median(std::move(times)), all / count};
  }
  template <typename T>
  static double Median(std::vector<T> values) {
    std::sort(values.begin(), values.end());
    return static_cast<double>(values[values.size() / 2]);
  }

  std::unique_ptr<Crowd> crowd_;
};

// The crowd's own work costs the same whomever it visits, and so does what else the machine has to
// do, in the middle of many turns: what is told apart is what its visits cost the task.
TEST_F(HostileVisitorTest, StepsGoOnAsBeforeAndNothingIsTakenForThem) {
  for (const char* path : {"/statusz", "/stepz", "/metrics", "/"}) {
    EXPECT_EQ(testing::Get(http_->port(), path).status, 200) << path;
  }
  (void)TimeNullSteps(kWindow);  // to warm up
  const ProcessStats before = ReadProcessStats();
  std::vector<double> medians, means, alone;
  int64_t most_files = 0, most_bytes = 0;
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(crowd_->Visit(Crowd::kNobody));
    const Nanos quiet = TimeNullSteps(kWindow);
    ASSERT_TRUE(crowd_->Visit(Crowd::kItself)) << "there is no crowd";
    const Nanos elsewhere = TimeNullSteps(kWindow);
    ASSERT_TRUE(crowd_->Visit(http_->port())) << "there is no attack";
    const int came = crowd_->came();
    const Nanos here = TimeNullSteps(kWindow);
    EXPECT_GT(crowd_->came() - came, 50) << "the attack was over before the steps were timed";
    const ProcessStats during = ReadProcessStats();
    most_files = std::max(most_files, during.open_files);
    most_bytes = std::max(most_bytes, during.resident_bytes);
    medians.push_back(here.median / elsewhere.median);
    means.push_back(here.mean / elsewhere.mean);
    alone.push_back(here.mean / quiet.mean);
  }
  const auto percent = [](const std::vector<double>& of) {
    return static_cast<int>(100 * Median(of));
  };
  RecordProperty("percent_of_the_median_with_a_crowd_elsewhere", percent(medians));
  RecordProperty("percent_of_the_mean_with_a_crowd_elsewhere", percent(means));
  RecordProperty("percent_of_the_mean_without_a_crowd", percent(alone));
  RecordProperty("kilobytes_more", static_cast<int>((most_bytes - before.resident_bytes) >> 10));
  EXPECT_LT(Median(medians), 1.5) << ::testing::PrintToString(medians);
  EXPECT_LT(Median(means), 1.5) << ::testing::PrintToString(means) << ", beside no crowd "
                                << ::testing::PrintToString(alone);
  EXPECT_LE(most_files, before.open_files + 64 + 4) << "of " << kConnections;
  EXPECT_LT(most_bytes, before.resident_bytes + (24 << 20)) << "were " << before.resident_bytes;
  // A visitor who behaves is served, once there is room.
  ASSERT_TRUE(crowd_->Visit(Crowd::kNobody));
  EXPECT_EQ(testing::Get(http_->port(), "/healthz").status, 200);
}

}  // namespace
}  // namespace millrace
