// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/cells/hosts.h"

#include <algorithm>
#include <chrono>

#include "tests/fault/cells/cell_job.h"
#include "tests/fault/cells/task_log.h"

namespace millrace::testing {

Network* CellNetwork(std::string* why_not) {
  static Network network;
  static const std::string why = [] {
    std::string failed = network.Enter();
    for (const Role role : {Role::kPs, Role::kChief, Role::kWorker, Role::kReader, Role::kOther}) {
      if (failed.empty() && !network.AddHost(CellJob::HostOf(role))) {
        failed = "a host cannot be connected";
      }
    }
    return failed;
  }();
  *why_not = why;
  return why.empty() ? &network : nullptr;
}

DelayProbe::DelayProbe() : thread_([this] { Watch(); }) {}

DelayProbe::~DelayProbe() {
  ended_ = true;
  thread_.join();
}

void DelayProbe::Watch() {
  constexpr std::chrono::milliseconds kNap{20};
  while (!ended_) {
    const double begun = NowSeconds();
    std::this_thread::sleep_for(kNap);
    worst_ = std::max(worst_.load(), NowSeconds() - begun - kNap.count() * 1e-3);
  }
}

}  // namespace millrace::testing
