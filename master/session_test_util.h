// SPDX-License-Identifier: Apache-2.0
// A cluster inside of a test: tasks with CPU devices that share one rendezvous manager, and
// a few small kernels.
#ifndef MASTER_SESSION_TEST_UTIL_H_
#define MASTER_SESSION_TEST_UTIL_H_

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernel_registry.h"
#include "master/dump/graph_dump.h"
#include "master/master.h"
#include "ops/op_registry.h"
#include "proto/graph.pb.h"
#include "session/client_session.h"
#include "worker/local_worker.h"

namespace millrace {

// A GraphDef, node by node. Inputs as in a NodeDef: "n", "n:1", "^n".
class TestGraph {
 public:
  TestGraph();
  pb::NodeDef* Add(std::string_view name, std::string_view op,
                   std::initializer_list<std::string_view> inputs = {},
                   std::string_view device = "");
  // Float tensors: a constant, a placeholder, a sum, a copy.
  pb::NodeDef* Const(std::string_view name, float value, std::string_view device = "");
  pb::NodeDef* Placeholder(std::string_view name);
  pb::NodeDef* Sum(std::string_view name, std::string_view a, std::string_view b,
                   std::string_view device = "");
  pb::NodeDef* Identity(std::string_view name, std::string_view input,
                        std::string_view device = "");
  // Returns how often it ran, kept under `name` on its device for as long as the device keeps
  // its resources.
  pb::NodeDef* Counter(std::string_view name, std::string_view device = "");
  // Never ends by itself; says Cancelled "blocked op was cancelled" when it is.
  pb::NodeDef* Block(std::string_view name, std::string_view device = "");
  // Blocks its thread, whatever is cancelled, until OpenGates.
  pb::NodeDef* Gate(std::string_view name, std::string_view device = "");
  // Ends at once, on a thread outside of the pool: what follows starts in the pool.
  pb::NodeDef* Hop(std::string_view name, std::string_view device = "");
  // Fails with InvalidArgument "bad luck".
  pb::NodeDef* Fail(std::string_view name, std::string_view device = "");

  const pb::GraphDef& def() const { return def_; }

 private:
  pb::GraphDef def_;
};

// All ops, those of TestGraph, and kernels for what TestGraph adds. The registries must be empty.
void RegisterTestOpsAndKernels(OpRegistry& ops, KernelRegistry& kernels);
// How many blocked ops there are in this process right now; false if not `count` within 30 s.
bool WaitUntilOpsBlock(int count);
// The same for gates.
bool WaitUntilGatesBlock(int count);
// All that block right now.
void OpenGates();

class TestCluster {
 public:
  struct Options {
    int num_tasks = 1;
    int num_cpus = 1;  // in each task
    int num_threads = 2;
    std::string dump_dir{};  // if not "", the graphs of all sessions go there
  };
  TestCluster() : TestCluster(Options()) {}
  explicit TestCluster(Options options);
  ~TestCluster();

  static std::string TaskName(int task);  // "/job:worker/replica:0/task:N"
  std::shared_ptr<Master> master(int task = 0) { return tasks_[task]->master; }
  LocalWorker& worker(int task = 0) { return *tasks_[task]->worker; }
  Device* device(int task = 0, int cpu = 0) { return tasks_[task]->env.devices[cpu]; }
  // A session at the master of `task`, which must open.
  std::unique_ptr<ClientSession> NewSession(const pb::GraphDef& graph,
                                            ClientSession::Options options = {}, int task = 0);
  // How many blocked ops there are right now; false if not `count` within 30 s.
  bool WaitUntilBlocked(int count);

 private:
  struct Task {
    std::unique_ptr<DeviceSet> devices;
    WorkerEnv env;
    std::unique_ptr<LocalWorker> worker;
    std::shared_ptr<Master> master;
  };
  OpRegistry ops_;
  KernelRegistry kernels_;
  ThreadPool inter_op_pool_, intra_op_pool_;
  std::unique_ptr<RendezvousManager> rendezvous_;
  FixedWorkerCache workers_;
  std::unique_ptr<GraphDumper> dumper_;
  std::vector<std::unique_ptr<Task>> tasks_;
};

}  // namespace millrace

#endif  // MASTER_SESSION_TEST_UTIL_H_
