// SPDX-License-Identifier: Apache-2.0
// What a function costs besides its kernels: how many trivial ones are scheduled and done in a
// second, and how long one takes from Schedule to its result.
//
//   coordinator_bench [--workers N] [--in_flight N] [--functions N] [--repetitions N]
//
// The parameter server and the workers are processes of this program on loopback.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/strings.h"
#include "millrace/cluster_coordinator.h"
#include "millrace/millrace.h"

namespace millrace {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<int> FreePorts(int count) {
  std::vector<int> sockets, ports;
  for (int i = 0; i < count; ++i) {
    sockets.push_back(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(sockets[i], reinterpret_cast<sockaddr*>(&address), size) != 0) std::exit(1);
    getsockname(sockets[i], reinterpret_cast<sockaddr*>(&address), &size);
    ports.push_back(ntohs(address.sin_port));
  }
  for (const int fd : sockets) close(fd);
  return ports;
}

// Before this process has a thread.
pid_t Serve(const ClusterSpec& spec, const std::string& job, int task) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ServerOptions options;
  options.cluster = spec;
  options.job_name = job;
  options.task_index = task;
  options.inter_op_threads = 1;
  options.intra_op_threads = 1;
  const auto server = Server::Create(options);
  if (!server.ok() || !(*server)->Start().ok()) _exit(1);
  (*server)->WaitForShutdown();
  _exit(0);
}

struct Flags {
  int workers = 2, in_flight = 4, functions = 20'000, repetitions = 5;
};

struct Spread {
  double low, middle, high;
};
Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

int Fail(const Status& status) {
  std::fprintf(stderr, "coordinator_bench: %s\n", status.ToString().c_str());
  return 1;
}

int Measure(const ClusterSpec& spec, const Flags& flags) {
  Graph graph;
  CoordinatorOptions options;
  options.cluster = spec;
  options.max_in_flight = flags.in_flight;
  auto made = ClusterCoordinator::Create(graph, options);
  if (!made.ok()) return Fail(made.status());
  ClusterCoordinator& coordinator = **made;
  const auto trivial = coordinator.AddFunction("trivial", [](const Scope& worker) {
    const Output x = Placeholder(worker, kFloat, PartialShape(Shape({})));
    return FunctionParts{{x}, {ops::Add(worker, x, x)}, {}};
  });
  if (!trivial.ok()) return Fail(trivial.status());
  const Tensor one = Tensor::Scalar(1.0f);
  const auto schedule = [&] { return coordinator.Schedule(*trivial, std::span(&one, 1)); };
  const auto batch = [&](int count) -> Status {
    for (int i = 0; i < count; ++i) {
      const auto value = schedule();
      if (!value.ok()) return value.status();
    }
    return coordinator.Join();
  };
  while (coordinator.stats().workers_ready < flags.workers) {
    const Status status = batch(1);
    if (!status.ok()) return Fail(status);
  }
  Status status = batch(1000);
  std::vector<double> rates, latencies;
  for (int r = 0; r < flags.repetitions && status.ok(); ++r) {
    double begin = Now();
    status = batch(flags.functions);
    rates.push_back(flags.functions / (Now() - begin));
    constexpr int kOneByOne = 500;
    begin = Now();
    for (int i = 0; i < kOneByOne && status.ok(); ++i) {
      const auto value = schedule();
      status = value.ok() ? value->Fetch().status() : value.status();
    }
    latencies.push_back((Now() - begin) * 1e3 / kOneByOne);
  }
  if (!status.ok()) return Fail(status);
  const Spread rate = SpreadOf(rates), latency = SpreadOf(latencies);
  std::printf("%d workers, %d in flight each, %d functions, %d repetitions: median [least, most]\n",
              flags.workers, flags.in_flight, flags.functions, flags.repetitions);
  std::printf("schedule and join    %8.0f [%.0f, %.0f] functions/s\n", rate.middle, rate.low,
              rate.high);
  std::printf("schedule and fetch   %8.3f [%.3f, %.3f] ms\n", latency.middle, latency.low,
              latency.high);
  return 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  const std::pair<const char*, int*> known[] = {{"--workers", &flags.workers},
                                                {"--in_flight", &flags.in_flight},
                                                {"--functions", &flags.functions},
                                                {"--repetitions", &flags.repetitions}};
  for (int i = 1; i < argc; i += 2) {
    int* target = nullptr;
    for (const auto& [name, value] : known) {
      if (std::strcmp(argv[i], name) == 0) target = value;
    }
    if (target == nullptr || i + 1 == argc || (*target = std::atoi(argv[i + 1])) < 1) {
      std::fprintf(stderr, "coordinator_bench: not understood: %s\n", argv[i]);
      return 2;
    }
  }
  SetLogLevel(LogLevel::kError);
  const std::vector<int> ports = FreePorts(1 + flags.workers);
  ClusterSpec spec;
  std::vector<std::pair<std::string, int>> tasks{{"ps", 0}};
  for (int i = 0; i < flags.workers; ++i) tasks.emplace_back("worker", i);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Status added =
        spec.AddTask(tasks[i].first, tasks[i].second, StrCat("127.0.0.1:", ports[i]));
    if (!added.ok()) return Fail(added);
  }
  std::vector<pid_t> children;
  for (const auto& [job, task] : tasks) children.push_back(Serve(spec, job, task));
  const int result = Measure(spec, flags);
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  return result;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
