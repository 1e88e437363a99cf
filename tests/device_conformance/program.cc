// SPDX-License-Identifier: Apache-2.0
#include "tests/device_conformance/program.h"

#include "base/strings.h"
#include "frontend/graph_builder.h"
#include "graph/graph_def_io.h"
#include "runtime/fake_accelerator.h"
#include "runtime/local_cluster.h"

namespace millrace::testing {

Program::Program(std::string device_type)
    : type(std::move(device_type)), root(graph.root()), device(On(0)) {
  UseFakeAccelerator();
}

Scope Program::On(int index) const { return root.WithDevice(StrCat("/device:", type, ":", index)); }
Scope Program::host() const { return root.WithDevice("/device:CPU:0"); }

std::string Program::DeviceName(int index) const {
  return StrCat("/job:localhost/replica:0/task:0/device:", type, ":", index);
}

std::shared_ptr<FakeMachine> Program::machine(int index) const {
  auto found = FakeMachine::Find(DeviceName(index));
  EXPECT_NE(found, nullptr);
  return found;
}

void Program::Open(int threads) {
  config.set_allow_soft_placement(true);
  (*config.mutable_device_count())[type] = devices;
  config.set_inter_op_parallelism_threads(threads);
  auto made = NewLocalCluster(config);
  ASSERT_TRUE(made.ok()) << made.status();
  master = *std::move(made);
  session = NewSession();
}

std::unique_ptr<ClientSession> Program::NewSession() {
  EXPECT_TRUE(graph.status().ok()) << graph.status();
  pb::GraphDef def;
  const Status exported = ExportGraphDef(*graph.state()->graph, {}, &def);
  EXPECT_TRUE(exported.ok()) << exported;
  ClientSession::Options options;
  options.config = config;
  options.step_timeout = std::chrono::seconds(60);
  auto made = ClientSession::Create(master, std::move(def), std::move(options));
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

StatusOr<std::vector<Tensor>> Program::Run(const std::vector<std::pair<Output, Tensor>>& feeds,
                                           const std::vector<Output>& fetches,
                                           const std::vector<Operation>& targets,
                                           std::chrono::milliseconds limit) {
  ClientSession::RunRequest request;
  for (const auto& [output, value] : feeds) request.feeds.emplace_back(output.name(), value);
  for (const Output& fetch : fetches) request.fetches.push_back(fetch.name());
  for (const Operation& target : targets) request.targets.push_back(target.name());
  request.options.set_timeout_in_ms(limit.count());
  return session->Run(std::move(request));
}

Tensor Program::Eval(const Output& fetch, const std::vector<std::pair<Output, Tensor>>& feeds) {
  const auto values = Run(feeds, {fetch});
  EXPECT_TRUE(values.ok()) << values.status();
  return values.ok() ? (*values)[0] : Tensor();
}

void Program::RunTargets(const std::vector<Operation>& targets) {
  const auto ran = Run({}, {}, targets);
  EXPECT_TRUE(ran.ok()) << ran.status();
}

void ExpectNothingLeft(Program& p) {
  std::vector<std::shared_ptr<FakeMachine>> machines;
  if (p.simulated() && p.master != nullptr) {
    for (int i = 0; i < p.devices; ++i) machines.push_back(p.machine(i));
  }
  p.session.reset();
  for (const auto& machine : machines) {
    EXPECT_TRUE(machine->Synchronize(std::chrono::seconds(30)).ok());
  }
  p.master.reset();
  for (const auto& machine : machines) {
    EXPECT_TRUE(Eventually([&] { return machine->allocator()->stats().bytes_in_use == 0; }))
        << machine->name() << ": " << machine->allocator()->stats().bytes_in_use << " bytes";
  }
}

}  // namespace millrace::testing
