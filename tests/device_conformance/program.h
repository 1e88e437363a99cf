// SPDX-License-Identifier: Apache-2.0
// A graph with nodes on a device, and a session in a cluster of its own that has two of them.
#ifndef TESTS_DEVICE_CONFORMANCE_PROGRAM_H_
#define TESTS_DEVICE_CONFORMANCE_PROGRAM_H_

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/fake/fake_device.h"
#include "gtest/gtest.h"
#include "millrace/core.h"
#include "session/client_session.h"
#include "session/master_interface.h"

namespace millrace::testing {

struct Program {
  // Of a type of device: "CPU", "FAKE", which the process has from then on.
  explicit Program(std::string type);

  Scope On(int index) const;
  // Of CPU:0.
  Scope host() const;

  // Threads as ConfigProto.inter_op_parallelism_threads.
  void Open(int threads = 2);
  std::unique_ptr<ClientSession> NewSession();
  StatusOr<std::vector<Tensor>> Run(const std::vector<std::pair<Output, Tensor>>& feeds,
                                    const std::vector<Output>& fetches,
                                    const std::vector<Operation>& targets = {},
                                    std::chrono::milliseconds limit = {});
  // Fetches one value, which must come.
  Tensor Eval(const Output& fetch, const std::vector<std::pair<Output, Tensor>>& feeds = {});
  void RunTargets(const std::vector<Operation>& targets);

  bool simulated() const { return type == "FAKE"; }
  std::string DeviceName(int index) const;
  // Simulated devices only.
  std::shared_ptr<FakeMachine> machine(int index = 0) const;

  const std::string type;
  int devices = 2;
  Graph graph;
  Scope root, device;  // anywhere; on device 0
  pb::ConfigProto config;
  std::shared_ptr<MasterInterface> master;
  std::unique_ptr<ClientSession> session;
};

// Waits until it is so, or for half a minute: what a step took goes with the last callback of a
// device, which may come after its answer.
template <typename Condition>
bool Eventually(Condition condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Ends the session and the cluster; simulated devices have nothing of them left then.
void ExpectNothingLeft(Program& p);

}  // namespace millrace::testing

#endif  // TESTS_DEVICE_CONFORMANCE_PROGRAM_H_
