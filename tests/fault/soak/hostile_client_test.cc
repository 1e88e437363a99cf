// A client that means harm, beside a job that trains at the same server: malformed messages,
// floods, abandoned sessions and endless loops. What is learned is the same to the bit. With
// MILLRACE_HOSTILE_SECONDS it goes on for so long, and the rate is held against the one before.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/notification.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "distributed_runtime/task_server.h"
#include "millrace/control_flow.h"
#include "millrace/core.h"
#include "millrace/initializers.h"
#include "millrace/training.h"
#include "session/async_join.h"
#include "session/master_interface.h"
#include "tests/cluster/in_process_cluster.h"
#include "tests/cluster/process.h"
#include "tests/fault/soak/usage.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/methods.h"

namespace millrace::testing {
namespace {

using std::chrono::seconds;

constexpr seconds kPatience{60};
constexpr int kSteps = 150;  // of one training
constexpr char kPortVariable[] = "MILLRACE_HOSTILE_PORT";

Deadline In(int64_t millis) { return DeadlineAfter(std::chrono::milliseconds(millis)); }

// ---- The hostile client --------------------------------------------------------------------
void SendGarbage(int port, std::mt19937& random) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    std::string bytes = random() % 2 == 0 ? "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" : "";
    for (int i = 0; i < 500; ++i) bytes += static_cast<char>(random());
    (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  close(fd);
}

[[noreturn]] void SendMalformed(int port) {
  constexpr const char* kMethods[] = {methods::kMasterCreateSession, methods::kMasterRunStep,
                                      methods::kMasterExtendSession, methods::kWorkerRunGraph,
                                      methods::kWorkerRegisterGraph, methods::kWorkerRecvTensor,
                                      methods::kWorkerGetStatus,     methods::kControlOfferLink};
  std::mt19937 random(7);
  ThreadPool pool("hostile", 1);
  RpcChannel channel(StrCat("127.0.0.1:", port), "the server", &pool);
  while (true) {
    constexpr int kAtOnce = 32;
    BlockingCounter answers(kAtOnce);
    for (int i = 0; i < kAtOnce; ++i) {
      std::string bytes(random() % 200, '\0');
      for (char& c : bytes) c = static_cast<char>(random() % 64);
      WireWriter request;
      request.AppendBytesField(1 + random() % 6, bytes);
      channel.Call(kMethods[random() % std::size(kMethods)], {.deadline = In(2'000)},
                   std::move(request),
                   [&answers](const Status&, WireReader) { answers.DecrementCount(); });
    }
    answers.Wait();
    SendGarbage(port, random);
  }
}

Operation Endless(Graph& graph) {
  const Scope scope = graph.root();
  const std::vector<Output> last = WhileLoop(
      scope, {Constant(scope, Tensor::Scalar(0.0f))},
      [](const Scope& s, std::span<const Output> v) { return ops::GreaterEqual(s, v[0], 0.0f); },
      [](const Scope& s, std::span<const Output> v) {
        return std::vector<Output>{ops::Identity(s, v[0])};
      });
  return last[0].op();
}

[[noreturn]] void RunEndlessLoops(const std::string& target) {
  while (true) {
    Graph graph;
    const Operation loop = Endless(graph);
    auto session = Session::Create(graph, {.target = target});
    if (!session.ok()) continue;
    for (int i = 0; i < 5; ++i) {
      session->Run({}, {}, {loop}, {.timeout = std::chrono::milliseconds(500)})
          .status()
          .IgnoreError();
    }
  }
}

// Sessions that nobody closes, with a megabyte each.
[[noreturn]] void AbandonSessions(const std::string& target) {
  Graph graph;
  const Output big = Constant(graph.root(), Tensor(kFloat, Shape({250'000})));
  (void)ops::Identity(graph.root(), big);
  const std::string bytes = graph.ToGraphDef().value_or("");
  while (true) {
    const auto master = ConnectToMaster(target);
    CreateSessionArgs args;
    if (!master.ok() || !args.graph.ParseFromString(bytes)) continue;
    CreateSessionResult result;
    Await([&](auto done) {
      (*master)->CreateSessionAsync({.deadline = In(5'000)}, std::move(args), &result, done);
    }).IgnoreError();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// The hostile process: this program once more, until it is killed.
TEST(HostileClient, DISABLED_MeansHarm) {
  const char* const port = std::getenv(kPortVariable);
  ASSERT_NE(port, nullptr);
  cpu_set_t last;
  CPU_ZERO(&last);
  CPU_SET(static_cast<std::size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)) - 1), &last);
  (void)sched_setaffinity(0, sizeof(last), &last);
  const std::string target = StrCat("grpc://127.0.0.1:", port);
  std::thread malformed([port] { SendMalformed(std::atoi(port)); });
  std::thread loops([target] { RunEndlessLoops(target); });
  AbandonSessions(target);
}

// ---- The job -------------------------------------------------------------------------------
struct Training {
  std::vector<float> losses;
  double rate = 0;  // steps per second
};

StatusOr<Training> Train(const std::string& target) {
  Graph graph;
  graph.SetSeed(5);
  const Scope root = graph.root();
  const Output x = ops::RandomUniform(root, {32, 16}, kFloat, {.seed = 3});
  const Variable w = MakeVariable(root, "w", {16, 1}, initializers::RandomUniform({.seed = 9}));
  const std::unique_ptr<Optimizer> optimizer = GradientDescent({.learning_rate = 0.05f});
  Tensor ones(kFloat, Shape({16, 1}));
  std::fill_n(ones.data<float>(), 16, 1.0f);
  const Output y = ReduceMean(
      root, ops::SquaredDifference(root, ops::MatMul(root, x, w.read),
                                   ops::Tanh(root, ops::MatMul(root, x, Constant(root, ones)))));
  MR_ASSIGN_OR_RETURN(const Operation train, optimizer->Minimize(root, y, nullptr));
  const Operation init = InitializeVariables(root);
  MR_ASSIGN_OR_RETURN(Session session, Session::Create(graph, {.target = target}));
  MR_RETURN_IF_ERROR(session.RunTargets({init}));
  Training result;
  const auto begun = SteadyClock::now();
  for (int i = 0; i < kSteps; ++i) {
    MR_ASSIGN_OR_RETURN(const std::vector<Tensor> out, session.Run({}, {y}, {train}));
    result.losses.push_back(out[0].scalar<float>());
  }
  result.rate = kSteps / std::chrono::duration<double>(SteadyClock::now() - begun).count();
  return result;
}

TEST(HostileClient, ChangesNoBitOfWhatAJobLearnsBesideIt) {
  const char* const wanted = std::getenv("MILLRACE_HOSTILE_SECONDS");
  const double duration = wanted == nullptr ? 4 : std::atof(wanted);
  const int port = FreePorts(1)[0];
  Process server("tools/millrace", {"server", StrCat("--cluster_spec=worker|127.0.0.1:", port),
                                    "--job_name=worker", "--task_id=0", "--session_idle_limit=5"});
  ASSERT_TRUE(server.WaitForOutput("listening on", kPatience)) << server.output();
  const std::string target = StrCat("grpc://127.0.0.1:", port);
  const StatusOr<Training> alone = Train(target);
  ASSERT_TRUE(alone.ok()) << alone.status();
  ASSERT_LT(alone->losses.back(), alone->losses.front());

  std::vector<double> before, beside;
  for (int i = 0; i < 5; ++i) before.push_back(Train(target).value_or(Training()).rate);
  setenv(kPortVariable, StrCat(port).c_str(), 1);
  const auto harm = std::make_unique<Process>(
      "/proc/self/exe", std::vector<std::string>{"--gtest_also_run_disabled_tests",
                                                 "--gtest_filter=*DISABLED_MeansHarm"});
  const auto end = SteadyClock::now() + std::chrono::duration<double>(duration);
  while (SteadyClock::now() < end) {
    const StatusOr<Training> now = Train(target);
    ASSERT_TRUE(now.ok()) << now.status();
    ASSERT_EQ(std::memcmp(now->losses.data(), alone->losses.data(), kSteps * sizeof(float)), 0);
    beside.push_back(now->rate);
  }
  EXPECT_EQ(harm->WaitForEnd(seconds(0)), Process::kStillRunning) << harm->output();
  EXPECT_EQ(server.WaitForEnd(seconds(0)), Process::kStillRunning) << server.output();
  const auto median = [](std::vector<double> rates) {
    std::sort(rates.begin(), rates.end());
    return rates[rates.size() / 2];
  };
  const double ratio = median(beside) / median(before);
  std::printf(
      "%zu trainings beside a hostile client, equal to the bit; rate %.2f of before, the "
      "server has %lld MiB\n",
      beside.size(), ratio, static_cast<long long>(UsageOf(server.pid()).memory_kib >> 10));
  if (wanted != nullptr) {
    EXPECT_GE(ratio, 0.7);
  }
}

}  // namespace
}  // namespace millrace::testing
