// SPDX-License-Identifier: Apache-2.0
// The pages of one task, but for those that need the planner.
#ifndef DISTRIBUTED_RUNTIME_PAGES_TASK_PAGES_H_
#define DISTRIBUTED_RUNTIME_PAGES_TASK_PAGES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "distributed_runtime/pages/step_tracer.h"
#include "millrace/status.h"
#include "observe/page.h"
#include "observe/peer_traffic.h"
#include "observe/rpc_table.h"
#include "observe/step_log.h"

namespace millrace {

// What is counted in one task. Thread-safe.
struct TaskObservation {
  // The addresses of the other tasks, by task.
  explicit TaskObservation(const std::map<std::string, std::string>& others) : peers(others) {}

  RpcTable rpc;
  PeerTraffic peers;
  StepLog steps;
  StepTracer tracer;
};

// What else there is to say of it.
struct TaskFacts {
  std::string task;  // "/job:J/replica:0/task:T"
  std::string cluster_id;
  int64_t started_nanos = 0;                               // by SteadyNanos
  std::vector<std::pair<std::string, std::string>> flags;  // without secrets
  std::vector<const Device*> devices;
  std::function<std::string()> address;  // "host:port"
  std::function<Status()> usable;        // whether callers can be served; null: they can
  std::function<std::string()> silent;   // which tasks do not answer; "": all do
  std::function<std::string(const std::string& task)> version_of;  // of another task
  const TaskObservation* observed = nullptr;
};

// "/", "/statusz", "/stepz", "/rpcz", "/memz", "/healthz" and "/metrics". What is pointed to, and
// the table, must be there until the table is closed.
void AddTaskPages(TaskFacts facts, PageTable* pages);

// For them, and for tests.
Page MakeStatusPage(const TaskFacts& facts, const PageTable& pages);
Page MakeStepPage(const TaskFacts& facts, const PageTable& pages);
Page MakeRpcPage(const TaskFacts& facts, const PageTable& pages);
Page MakeMemoryPage(const TaskFacts& facts, const PageTable& pages);
Page MakeMetrics(const TaskFacts& facts, const PageRequest& request);

// What lives on a device between steps, as its manager describes it.
struct ResourceLine {
  std::string name;  // "container/name"
  std::string text;  // "FIFOQueue 'q' capacity 32, 3 elements"

  // The number before a word of the text ("elements"); -1 if there is none.
  int64_t NumberBefore(std::string_view word) const;
};
std::vector<ResourceLine> ResourcesOf(const Device& device);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_PAGES_TASK_PAGES_H_
