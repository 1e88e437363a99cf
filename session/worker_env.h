// SPDX-License-Identifier: Apache-2.0
// What a worker, and the master beside it, are given by whoever composes a task.
#ifndef SESSION_WORKER_ENV_H_
#define SESSION_WORKER_ENV_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/options/engine_options.h"
#include "base/wait.h"
#include "device/device.h"
#include "kernels/kernel_registry.h"
#include "millrace/status.h"
#include "ops/op_registry.h"
#include "session/rendezvous_manager.h"
#include "session/worker_cache.h"

namespace millrace {

class CollectiveManager;  // collective/collective_manager.h
class DataflowGraph;      // graph/dataflow_graph.h
class SessionClusters;    // session/session_clusters.h
class ThreadPool;         // base/thread_pool.h

// Devices with the resources that they use.
struct DeviceSet {
  std::vector<std::unique_ptr<ResourceManager>> resources;
  std::vector<std::unique_ptr<Device>> devices;  // destroyed before the resources
};

// Everything pointed to is owned by the composer, outlives the worker and the master, and is
// thread-safe.
struct WorkerEnv {
  std::string task;              // "/job:J/replica:R/task:T"
  std::vector<Device*> devices;  // of this task; the first one is the client's device
  const OpRegistry* ops = nullptr;
  const KernelRegistry* kernels = nullptr;
  ThreadPool* inter_op_pool = nullptr;  // kernels and callbacks run here
  // What RunOptions.inter_op_thread_pool chooses from, by index; empty: there is only the one.
  std::vector<ThreadPool*> inter_op_pools;
  RendezvousManager* rendezvous = nullptr;
  WorkerCache* workers = nullptr;            // may be null where no peer exists
  CollectiveManager* collectives = nullptr;  // null: collectives fail
  SessionClusters* clusters = nullptr;       // null: sessions bring none of their own
  // Adds the tasks of which nothing has been heard for some time. May be null.
  std::function<void(std::vector<Wait>* waits)> list_silent_tasks;
  // Devices of the same names, attributes and incarnations with resources of their own, for
  // a session with isolate_session_state. Null: such a session is Unimplemented.
  std::function<StatusOr<std::unique_ptr<DeviceSet>>()> make_session_devices;
  // Adds what the steps wait for that the master beside the worker runs itself. May be null.
  std::function<void(pb::TaskWaits* waits)> list_direct_waits;
  // What the steps of one session may hold here together, with what they leave, in bytes; 0: no
  // limit.
  int64_t session_memory_limit = 0;
  EngineOptions engine;
  // Judges graphs that steps make of data, as others are judged when they come. Null: all are let
  // in.
  std::function<Status(const DataflowGraph&)> admit;
};

}  // namespace millrace

#endif  // SESSION_WORKER_ENV_H_
