// SPDX-License-Identifier: Apache-2.0
// `millrace top`: what the tasks of a cluster do, live.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "tools/millrace/cluster_sample.h"
#include "tools/millrace/observe_commands.h"
#include "tools/millrace/offline.h"

namespace millrace {
namespace {

struct Flags {
  std::string target;
  double interval = 2;  // seconds
  int count = 0;        // 0: for ever
  double timeout = kAnswerSeconds;
  bool once = false, as_json = false;
};

int Run(const Flags& flags) {
  const StatusOr<std::string> address = AddressOf(flags.target);
  if (!address.ok()) return Complain("top", address.status(), kWrongInput);
  ClusterSampler cluster(*address, Nanoseconds(flags.timeout));
  StatusOr<std::vector<TaskSample>> before = cluster.Sample();
  if (!before.ok()) return Complain("top", before.status(), kImpossible);
  const bool redraws = !flags.as_json && !flags.once && isatty(STDOUT_FILENO) == 1;
  const int count = flags.once ? 1 : flags.count;
  for (int i = 0; count == 0 || i < count; ++i) {
    std::this_thread::sleep_for(std::chrono::duration<double>(flags.interval));
    // Whoever has gone, the one that was named among them, is shown as lost until it is back.
    StatusOr<std::vector<TaskSample>> now = cluster.Sample();
    if (!now.ok()) return Complain("top", now.status(), kImpossible);
    const std::vector<TaskRow> rows = MakeRows(*before, *now);
    // From the upper left corner, over what was there.
    if (redraws) std::fputs("\x1b[H\x1b[2J", stdout);
    std::fputs((flags.as_json ? RowsToJson(rows) : RowsToText(rows)).c_str(), stdout);
    std::fflush(stdout);
    before = std::move(now);
  }
  return kDone;
}

}  // namespace

void AddTopCommand(CLI::App* app, std::function<int()>* chosen) {
  auto flags = std::make_shared<Flags>();
  CLI::App* const command = AddCommand(
      app, "top", "show what the tasks of a cluster do: steps, bytes, waiting, memory",
      [flags] { return Run(*flags); }, chosen);
  command->add_option("target", flags->target, "grpc://host:port of any of its tasks")->required();
  command->add_option("--interval", flags->interval, "seconds between two looks")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  AddTimeoutFlag(command, &flags->timeout);
  command->add_option("--count", flags->count, "how often (default: until it is stopped)")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--once", flags->once, "the same as --count 1, without a screen");
  command->add_flag("--json", flags->as_json, "one line of JSON for each look, for programs");
}

}  // namespace millrace
