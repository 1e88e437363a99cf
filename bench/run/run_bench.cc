// SPDX-License-Identifier: Apache-2.0
// What a step costs besides its kernels: a prepared local call, dispatch of one node, a null
// step through a server, a tensor from one task to another. Each figure stands beside a limit
// measured in the same run, in turns: ours, limit, ours, limit...
//
//   run_bench [--repetitions N]
//
// The other task is a second process of this program.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/notification.h"
#include "base/strings.h"
#include "millrace/core.h"

namespace millrace {
namespace {

constexpr int64_t kMessageBytes = 64;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Microseconds for each of `count` calls.
double MicrosPer(int count, const std::function<void()>& call) {
  const double begin = Now();
  for (int i = 0; i < count; ++i) call();
  return (Now() - begin) * 1e6 / count;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Bench {
  int repetitions = 9;

  // Both functions give microseconds for one; `per` scales them for print.
  void Compare(const char* what, const char* limit, const char* unit, double per,
               const std::function<double()>& ours, const std::function<double()>& theirs) const {
    std::vector<double> a, b, ratio;
    ours();  // warm
    theirs();
    for (int i = 0; i < repetitions; ++i) {
      a.push_back(ours() * per);
      b.push_back(theirs() * per);
      ratio.push_back(a.back() / b.back());
    }
    const auto [low, high] = std::minmax_element(ratio.begin(), ratio.end());
    std::printf("%-44s %10.2f %-8s limit %10.2f  ratio %7.2f [%.2f, %.2f]   (%s)\n", what,
                Median(a), unit, Median(b), Median(ratio), *low, *high, limit);
    std::fflush(stdout);
  }
};

// ---- limits ----

// Of two kinds in random order, so that the compiler cannot know which.
struct VirtualNode {
  virtual ~VirtualNode() = default;
  virtual void Run(int64_t* counter) { *counter += 1; }
};
struct OtherNode : VirtualNode {
  void Run(int64_t* counter) override { *counter ^= 3; }
};

// Two threads that wake each other by a condition variable.
class HandOff {
 public:
  HandOff() : other_([this] { Answer(); }) {}
  ~HandOff() {
    Turn(2);
    other_.join();
  }
  void RoundTrip() {
    MutexLock lock(&mu_);
    turn_ = 1;
    changed_.SignalAll();
    while (turn_ != 0) changed_.Wait(&mu_);
  }

 private:
  void Turn(int turn) {
    MutexLock lock(&mu_);
    turn_ = turn;
    changed_.SignalAll();
  }
  void Answer() {
    MutexLock lock(&mu_);
    for (;;) {
      while (turn_ == 0) changed_.Wait(&mu_);
      if (turn_ == 2) return;
      turn_ = 0;
      changed_.SignalAll();
    }
  }
  Mutex mu_;
  CondVar changed_;
  int turn_ ABSL_GUARDED_BY(mu_) = 0;
  std::thread other_;
};

int Listen(int* port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  MR_CHECK(bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(fd, 1) == 0);
  MR_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  *port = ntohs(address.sin_port);
  return fd;
}

bool Transfer(int fd, char* bytes, std::size_t size, bool in) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t n =
        in ? read(fd, bytes + done, size - done) : write(fd, bytes + done, size - done);
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

// A blocking TCP connection to the other process, which answers 8 bytes that say how much is
// wanted with that much.
class RawTcp {
 public:
  explicit RawTcp(int port) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    MR_CHECK(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  ~RawTcp() { close(fd_); }
  void Ask(int64_t bytes) {
    buffer_.resize(static_cast<std::size_t>(bytes));
    MR_CHECK(Transfer(fd_, reinterpret_cast<char*>(&bytes), sizeof(bytes), false));
    MR_CHECK(Transfer(fd_, buffer_.data(), buffer_.size(), true));
  }

 private:
  int fd_ = -1;
  std::vector<char> buffer_;
};

// ---- the other process ----

// Serves as /job:ps/task:0 and answers raw TCP until its parent ends it.
int RunOther(const std::string& cluster, int listener) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ServerOptions options;
  options.cluster = *ClusterSpec::Parse(cluster);
  options.job_name = "ps";
  auto server = Server::Create(options);
  MR_CHECK(server.ok() && (*server)->Start().ok());
  const int fd = accept(listener, nullptr, nullptr);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  std::vector<char> bytes;
  for (;;) {
    int64_t wanted = 0;
    if (!Transfer(fd, reinterpret_cast<char*>(&wanted), sizeof(wanted), true)) break;
    bytes.resize(static_cast<std::size_t>(wanted));
    if (!Transfer(fd, bytes.data(), bytes.size(), false)) break;
  }
  return 0;
}

// ---- ours ----

void Local(const Bench& bench) {
  Graph graph;
  const Scope root = graph.root();
  const Output x = Placeholder(root.WithOpName("x"), kFloat, {});
  const Output one = ops::Add(root, x, x);
  constexpr int kChain = 100'000;
  Operation last = ops::NoOp(root);
  for (int i = 1; i < kChain; ++i) last = ops::NoOp(root.WithControlDependencies({last}));
  constexpr int kAdds = 1000;
  Output sum = x;
  for (int i = 0; i < kAdds; ++i) sum = ops::Add(root, sum, x);

  auto session = Session::Create(graph, {.inter_op_threads = -1});
  MR_CHECK(session.ok());
  const Tensor value = Tensor::Scalar<float>(0);
  const Output feeds[] = {x}, fetch_one[] = {one}, fetch_sum[] = {sum};
  const Operation targets[] = {last};
  const Callable single = *session->MakeCallable(feeds, fetch_one);
  const Callable chain = *session->MakeCallable({}, {}, targets);
  const Callable adds = *session->MakeCallable(feeds, fetch_sum);

  HandOff hand_off;
  bench.Compare(
      "prepared local call: feed, Add, fetch", "a thread hand-off and back", "us", 1,
      [&] { return MicrosPer(20'000, [&] { MR_CHECK(single.Run(std::span(&value, 1)).ok()); }); },
      [&] { return MicrosPer(2'000, [&] { hand_off.RoundTrip(); }); });

  std::vector<std::unique_ptr<VirtualNode>> nodes(kChain);
  for (int i = 0; i < kChain; ++i) {
    // The other kind is rare: the branch predictor knows the way, as it knows that of a chain.
    if (std::rand() % 1000 == 0) {
      nodes[i] = std::make_unique<OtherNode>();
    } else {
      nodes[i] = std::make_unique<VirtualNode>();
    }
  }
  int64_t counter = 0;
  const auto virtual_calls = [&] {
    return MicrosPer(20, [&] {
      for (const auto& node : nodes) node->Run(&counter);
    });
  };
  bench.Compare(
      "null ops: a chain of 100,000 NoOps, per node", "a virtual call", "ns", 1e3 / kChain,
      [&] { return MicrosPer(5, [&] { MR_CHECK(chain.Run({}).ok()); }); }, virtual_calls);
  bench.Compare(
      "scalar adds: a chain of 1,000, per node", "a virtual call", "ns", 1e3 / kAdds,
      [&] { return MicrosPer(500, [&] { MR_CHECK(adds.Run(std::span(&value, 1)).ok()); }); },
      [&] { return virtual_calls() * kAdds / kChain; });
  MR_CHECK(counter > 0);
}

void Remote(const Bench& bench, const std::string& cluster, int raw_port) {
  RawTcp raw(raw_port);
  const auto raw_trip = [&](int64_t bytes, int count) {
    return [&raw, bytes, count] { return MicrosPer(count, [&] { raw.Ask(bytes); }); };
  };
  ServerOptions options;
  options.cluster = *ClusterSpec::Parse(cluster);
  options.job_name = "worker";
  auto server = Server::Create(options);
  MR_CHECK(server.ok() && (*server)->Start().ok());

  Graph graph;
  const Scope ps = graph.root().WithDevice("/job:ps/task:0");
  const Scope worker = graph.root().WithDevice("/job:worker/task:0");
  const Operation ps_null = ops::NoOp(ps);
  const Operation worker_null = ops::NoOp(worker);
  const int64_t sizes[] = {kMessageBytes, 64 << 10, 1 << 20, 16 << 20};
  std::vector<Operation> init, moves;
  for (const int64_t bytes : sizes) {
    const int64_t floats = bytes / 4;
    const Variable v = MakeVariable(ps, StrCat("v", bytes).c_str(), Zeros(ps, {floats}));
    init.push_back(v.initializer);
    moves.push_back(
        ops::NoOp(worker.WithControlDependencies({ops::Identity(worker, v.read).op()})));
  }

  // A client elsewhere: its session is at the ps, to which it speaks gRPC.
  const std::string ps_target = StrCat("grpc://", *options.cluster.Address("ps", 0));
  auto client = Session::Create(graph, {.target = ps_target});
  MR_CHECK(client.ok());
  const Callable through_grpc = *client->MakeCallable({}, {}, std::span(&ps_null, 1));
  bench.Compare(
      "null step of a client through gRPC", "a TCP round trip of 64 bytes", "us", 1,
      [&] { return MicrosPer(500, [&] { MR_CHECK(through_grpc.Run({}).ok()); }); },
      raw_trip(kMessageBytes, 500));

  auto session = Session::Create(graph, {.target = (*server)->target()});
  MR_CHECK(session.ok());
  MR_CHECK(session->Run({}, {}, init).ok());
  const Callable own = *session->MakeCallable({}, {}, std::span(&worker_null, 1));
  const Operation both_ops[] = {ps_null, worker_null};
  const Callable both = *session->MakeCallable({}, {}, both_ops);
  bench.Compare(
      "null step of the master's own worker", "a TCP round trip of 64 bytes", "us", 1,
      [&] { return MicrosPer(5'000, [&] { MR_CHECK(own.Run({}).ok()); }); },
      raw_trip(kMessageBytes, 500));
  bench.Compare(
      "null step of a ps and a worker", "a TCP round trip of 64 bytes", "us", 1,
      [&] { return MicrosPer(500, [&] { MR_CHECK(both.Run({}).ok()); }); },
      raw_trip(kMessageBytes, 500));
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    const Callable move = *session->MakeCallable({}, {}, std::span(&moves[i], 1));
    const int count = sizes[i] > (1 << 20) ? 10 : sizes[i] > (1 << 16) ? 100 : 500;
    bench.Compare(
        StrCat("step that moves ", sizes[i], " bytes ps to worker").c_str(), "those bytes over TCP",
        "us", 1, [&] { return MicrosPer(count, [&] { MR_CHECK(move.Run({}).ok()); }); },
        raw_trip(sizes[i], count));
  }
}

int Main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--other") return RunOther(argv[2], std::atoi(argv[3]));
  Bench bench;
  if (argc == 3 && std::string(argv[1]) == "--repetitions") {
    bench.repetitions = std::max(1, std::atoi(argv[2]));
  } else if (argc != 1) {
    std::fprintf(stderr, "usage: run_bench [--repetitions N]\n");
    return 2;
  }
  Local(bench);
  int raw_port = 0, ps_port = 0, worker_port = 0;
  const int listener = Listen(&raw_port);
  for (int* port : {&ps_port, &worker_port}) close(Listen(port));
  const std::string cluster = StrCat("ps|127.0.0.1:", ps_port, ",worker|127.0.0.1:", worker_port);
  const std::string listener_text = StrCat(dup(listener));  // survives exec
  const pid_t other = fork();
  if (other == 0) {
    execl("/proc/self/exe", argv[0], "--other", cluster.c_str(), listener_text.c_str(), nullptr);
    _exit(127);
  }
  MR_CHECK(other > 0);
  Remote(bench, cluster, raw_port);
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
