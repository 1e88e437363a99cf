// SPDX-License-Identifier: Apache-2.0
// A worker as the session sees it: called directly in this process, or through a stub.
// Plain structs on purpose: only the gRPC stub and service know the wire.
#ifndef SESSION_WORKER_INTERFACE_H_
#define SESSION_WORKER_INTERFACE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/calls/call_options.h"
#include "base/cancellation.h"
#include "base/errors.h"
#include "base/notification.h"
#include "collective/peer.h"
#include "graph/dataflow_graph.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "proto/cluster.pb.h"
#include "proto/config.pb.h"
#include "proto/device_attributes.pb.h"
#include "proto/server.pb.h"
#include "proto/step_stats.pb.h"
#include "proto/waits.pb.h"

namespace millrace {

struct WorkerSessionOptions {
  std::string session_handle;
  bool isolate_session_state = false;
  std::string master_task;
  int64_t master_incarnation = 0;
  // It is known that the master's task is the process of that incarnation: sessions of others that
  // called themselves so are nobody's any more.
  bool master_is_confirmed = true;
  // The cluster of the session, if its client brought one, with this worker's name in it. The
  // master's name is one of that cluster, too.
  std::shared_ptr<const pb::ServerDef> server_def{};
};

class DirectGraph;  // session/direct_run.h

// The feeds and fetches of a plan ("n:0"), in the order in which a direct graph takes them.
struct DirectIo {
  std::vector<std::string> feeds, fetches;
};

struct RegisterGraphArgs {
  std::string session_handle;
  std::unique_ptr<DataflowGraph> graph;  // this worker's part, placed
  pb::GraphOptions graph_options;
  pb::ConfigProto config;
  int64_t collective_graph_key = 0;
  // Wanted only from a worker that offers direct graphs.
  std::optional<DirectIo> direct;
  bool keep_graph = true;  // false: no step will record partition graphs
};

struct RunGraphArgs {
  std::string session_handle;
  std::string graph_handle;
  int64_t step_id = 0;
  std::vector<std::pair<std::string, Tensor>> sends;  // rendezvous key, value
  std::vector<std::string> recv_keys;
  bool record_timeline = false;
  bool record_costs = false;
  bool record_partition_graphs = false;
  bool is_partial = false;
  bool is_last_partial = false;
  int inter_op_thread_pool = 0;  // session/inter_op_pools.h; for a worker of this process
  // A worker elsewhere does not begin the step after this: whoever asked has given it up by then.
  Deadline begin_by = kNoDeadline;
  int64_t request_id = 0;  // of the client's request that the step was begun for; 0: unknown
};

struct RunGraphResult {
  std::vector<Tensor> recvs;  // in the order of recv_keys
  pb::StepStats step_stats;
  std::vector<pb::GraphDef> partition_graphs;
};

// Thread-safe. Callbacks run on an engine thread or, for a local worker, possibly before the
// call returns. Every call ends by its deadline (DeadlineExceeded) or cancellation.
class WorkerInterface {
 public:
  using Done = std::function<void(Status)>;
  virtual ~WorkerInterface() = default;

  virtual void GetStatusAsync(const CallOptions& options,
                              std::vector<pb::DeviceAttributes>* devices, Done done) = 0;
  virtual void CreateSessionAsync(const CallOptions& options, const WorkerSessionOptions& session,
                                  Done done) = 0;
  virtual void DeleteSessionAsync(const CallOptions& options, const std::string& session_handle,
                                  Done done) = 0;
  virtual void RegisterGraphAsync(const CallOptions& options, RegisterGraphArgs args,
                                  std::string* graph_handle, Done done) = 0;
  virtual void DeregisterGraphAsync(const CallOptions& options, const std::string& session_handle,
                                    const std::string& graph_handle, Done done) = 0;
  // `args` and `result` must stay valid until `done`.
  virtual void RunGraphAsync(const CallOptions& options, RunGraphArgs* args, RunGraphResult* result,
                             Done done) = 0;
  virtual void CleanupGraphAsync(const CallOptions& options, int64_t step_id, Done done) = 0;
  virtual void CleanupAllAsync(const CallOptions& options, std::vector<std::string> containers,
                               Done done) = 0;
  // What the step, or any step, waits for here. `waits` must stay valid until `done`. Unimplemented
  // where that cannot be known.
  virtual void ListWaitsAsync(const CallOptions&, std::optional<int64_t> /*step_id*/,
                              pb::TaskWaits* /*waits*/, Done done) {
    done(errors::Unimplemented("saying what steps wait for"));
  }
  // Whether a master of this process may run graphs of one device itself: those that it wants
  // to, and that FindDirectGraph then gives it (null for all others).
  virtual bool OffersDirectGraphs() const { return false; }
  virtual std::shared_ptr<DirectGraph> FindDirectGraph(const std::string& session_handle,
                                                       const std::string& graph_handle) {
    return nullptr;
  }
  // The value of `key` in step `step_id` at this worker (the sender).
  using RecvDone = std::function<void(const Status&, const Tensor&, bool is_dead)>;
  virtual void RecvTensorAsync(const CallOptions& options, int64_t step_id, const std::string& key,
                               RecvDone done) = 0;
  // What it does for others' collectives; null if nothing. Lives as long as the worker.
  virtual CollectivePeer* collectives() { return nullptr; }
};

}  // namespace millrace

#endif  // SESSION_WORKER_INTERFACE_H_
