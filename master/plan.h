// SPDX-License-Identifier: Apache-2.0
// A prepared run: what one (feeds, fetches, targets) signature became. The graph passes and
// their order are in plan.cc, and only there.
#ifndef MASTER_PLAN_H_
#define MASTER_PLAN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "graph/dataflow_graph.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"
#include "session/worker_cache.h"

namespace millrace {

class DirectPlan;   // master/direct_step.h
class RunDump;      // master/dump/graph_dump.h
class SessionDump;  // master/dump/graph_dump.h
class Step;         // master/step.h

// What is run, by name. Feeds and fetches as "n:0"; fetches and targets without repetition.
struct RunSignature {
  std::vector<std::string> feeds, fetches, targets;
  std::vector<std::pair<std::string, std::string>> connections;  // from tensor, to tensor
  bool partial = false;
  // If the workers keep the graphs that they were given, to hand them out: a plan of its own.
  bool keeps_graphs = false;
  // As the client gave it; 0: it did not.
  int64_t collective_graph_key = 0;
};

// The part of a plan that runs in one task.
struct PlanPart {
  std::string task;
  WorkerInterface* worker = nullptr;
  std::unique_ptr<DataflowGraph> graph;  // until it is registered
  std::string graph_handle;
  std::vector<std::string> feed_keys, fetch_keys;  // full rendezvous keys
};

// Constant once registered, but for its pool of idle steps. Thread-safe. Steps of a partial
// plan are not pooled: every round changes them.
class Plan : public std::enable_shared_from_this<Plan> {
 public:
  // Part and index within it of the key of a feed or fetch.
  struct Slot {
    int part = -1, index = -1;
  };

  Plan();
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // An idle step of this plan, ready to take feeds.
  RefPtr<Step> NewStep();
  // Makes the workers forget the step. Not waited for.
  void CleanupStep(int64_t step_id) const;

  std::string session_handle;
  RunSignature signature;
  std::vector<PlanPart> parts;
  // Steps with this key have ids that their masters agree on; 0: there are no collectives.
  int64_t collective_graph_key = 0;
  std::vector<Slot> feed_slots, fetch_slots;  // in the order of the signature
  // The placed graph of a partial run before it was partitioned: says which fetch needs which
  // feed. Null otherwise.
  std::unique_ptr<DataflowGraph> client_graph;
  std::shared_ptr<RunDump> dump;  // null unless the session writes its graphs
  // The whole plan, where the master can run it by itself; else null.
  std::shared_ptr<DirectPlan> direct;

 private:
  friend class Step;
  void Recycle(Step* step);

  Mutex mu_;
  std::vector<Step*> idle_ ABSL_GUARDED_BY(mu_);
};

// What the passes are given.
struct PlanContext {
  std::string client_device;  // full name; feeds and fetches meet the graph there
  uint64_t client_incarnation = 0;
  std::string client_task;
  // The incarnation of a device of the session, 0 if unknown.
  std::function<uint64_t(std::string_view device)> incarnation;
  // Never the same name twice in a session.
  std::function<std::string(std::string_view prefix)> new_name;
  WorkerCache* workers = nullptr;
  bool bfloat16_transfers = false;  // between tasks, for float tensors
  bool schedule_receives = false;   // partitioner/receive_schedule.h
  SessionDump* dump = nullptr;      // gets the graphs of the plan, if it is not null
};

// Makes of `graph`, a copy of the placed graph with at least what the signature needs (CopyForRun),
// the parts of each task. They are checked (partitioner/verify.h), but not registered yet.
// InvalidArgument and NotFound name the feed, fetch or target that is wrong.
StatusOr<std::shared_ptr<Plan>> BuildPlan(std::unique_ptr<DataflowGraph> graph,
                                          const PlanContext& context, RunSignature signature);

}  // namespace millrace

#endif  // MASTER_PLAN_H_
