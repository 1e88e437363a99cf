// SPDX-License-Identifier: Apache-2.0
// Steps of ranks, by the size of the packs in which their gradients travel: milliseconds, and the
// share of what a step with one pack of everything takes.
//
//   packs_bench [--ranks N] [--layers N] [--width N] [--batch N] [--steps N] [--rounds N]
//
// Ranks are processes on loopback, made anew for each size; sizes take turns.
#include <CLI/CLI.hpp>

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
#include <limits>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/core.h"
#include "millrace/data_parallel.h"

namespace millrace {
namespace {

struct Flags {
  int ranks = 2, layers = 12, width = 1024, batch = 64, steps = 15, rounds = 3;
};

std::vector<int> FreePorts(int count) {
  std::vector<int> sockets, ports;
  for (int i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) std::exit(1);
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    sockets.push_back(fd);
    ports.push_back(ntohs(address.sin_port));
  }
  for (const int fd : sockets) close(fd);
  return ports;
}

// The middle of the times of steps, in milliseconds.
StatusOr<double> TrainRank(const Flags& flags, const ProcessGroupOptions& options) {
  MR_ASSIGN_OR_RETURN(const auto group, ProcessGroup::Create(options));
  Graph graph;
  const Scope scope = graph.root();
  Output h = ops::Fill(scope, {flags.batch, flags.width}, 0.01f);
  for (int i = 0; i < flags.layers; ++i) {
    const Variable w =
        MakeVariable(scope, StrCat("w", i), ops::Fill(scope, {flags.width, flags.width}, 0.01f));
    h = ops::Tanh(scope, ops::MatMul(scope, h, w.read));
  }
  const auto optimizer =
      dp::DistributedOptimizer(GradientDescent({.learning_rate = 1e-6f}), {.group = group});
  MR_ASSIGN_OR_RETURN(const Operation train,
                      optimizer->Minimize(scope, ReduceSum(scope, h), nullptr));
  const Operation init = InitializeVariables(scope);
  SessionOptions session_options;
  MR_RETURN_IF_ERROR(group->ConfigureSession(&session_options));
  MR_ASSIGN_OR_RETURN(Session session, Session::Create(graph, session_options));
  MR_RETURN_IF_ERROR(session.RunTargets({init}));
  std::vector<double> times;
  for (int i = -3; i < flags.steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    MR_RETURN_IF_ERROR(session.RunTargets({train}));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (i >= 0) times.push_back(took.count());
  }
  MR_RETURN_IF_ERROR(group->Barrier());
  MR_RETURN_IF_ERROR(session.Close());
  std::nth_element(times.begin(), times.begin() + flags.steps / 2, times.end());
  return times[static_cast<std::size_t>(flags.steps / 2)];
}

// Of rank 0; this process has no threads, and does not get any.
double Measure(const Flags& flags, int64_t bytes_per_pack) {
  ClusterSpec cluster;
  std::vector<std::string> addresses;
  for (const int port : FreePorts(flags.ranks)) addresses.push_back(StrCat("127.0.0.1:", port));
  if (!cluster.AddJob("worker", addresses).ok()) std::exit(1);
  int result[2];
  if (pipe(result) != 0) std::exit(1);
  for (int rank = 0; rank < flags.ranks; ++rank) {
    if (fork() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const StatusOr<double> middle = TrainRank(
        flags, {.task = {.cluster = cluster, .job_name = "worker", .task_index = rank},
                .communication = {.bytes_per_pack = bytes_per_pack, .timeout_seconds = 60}});
    if (!middle.ok()) std::fprintf(stderr, "%s\n", middle.status().ToString().c_str());
    const double value = middle.value_or(-1);
    if (rank == 0 && write(result[1], &value, sizeof(value)) < 0) _exit(1);
    _exit(middle.ok() ? 0 : 1);
  }
  close(result[1]);
  double middle = -1;
  if (read(result[0], &middle, sizeof(middle)) < 0) middle = -1;
  close(result[0]);
  int ended = 0;
  while (wait(&ended) > 0) {
    if (ended != 0) std::fprintf(stderr, "a rank has ended with %x\n", ended);
  }
  return middle;
}

int Run(const Flags& flags) {
  constexpr int64_t kMiB = 1 << 20;
  const std::vector<std::pair<std::string, int64_t>> sizes = {
      {"everything", std::numeric_limits<int64_t>::max()},
      {"default", 0},
      {"256 KiB", kMiB / 4},
      {"4 MiB", 4 * kMiB},
      {"16 MiB", 16 * kMiB}};
  std::vector<std::vector<double>> times(sizes.size());
  for (int round = 0; round < flags.rounds; ++round) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      times[i].push_back(Measure(flags, sizes[i].second));
      if (times[i].back() < 0) return 1;
    }
  }
  double whole = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    const double middle = times[i][times[i].size() / 2];
    if (i == 0) whole = middle;
    std::printf("%-12s %8.2f ms  (%.2f to %.2f)  %.2f\n", sizes[i].first.c_str(), middle,
                times[i].front(), times[i].back(), middle / whole);
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  millrace::Flags flags;
  CLI::App app("Steps of ranks by the size of packs", "packs_bench");
  app.add_option("--ranks", flags.ranks, "Processes")->capture_default_str();
  app.add_option("--layers", flags.layers, "Dense layers")->capture_default_str();
  app.add_option("--width", flags.width, "Of a layer")->capture_default_str();
  app.add_option("--batch", flags.batch, "Rows of a rank")->capture_default_str();
  app.add_option("--steps", flags.steps, "That are measured")->capture_default_str();
  app.add_option("--rounds", flags.rounds, "Times that sizes take turns")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return millrace::Run(flags);
}
