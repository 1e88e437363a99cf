// SPDX-License-Identifier: Apache-2.0
// Graphs that a worker lets the master of its own task run by itself, without messages: what a
// master knows of running one.
#ifndef SESSION_DIRECT_RUN_H_
#define SESSION_DIRECT_RUN_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/cancellation.h"
#include "base/use_count.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "proto/config.pb.h"
#include "proto/graph.pb.h"
#include "proto/waits.pb.h"

namespace millrace {

struct DirectIo;  // session/worker_interface.h

// A step whose deadline has passed is cancelled, and has so long to end by itself.
inline constexpr std::chrono::milliseconds kOverdueGrace(500);

// Runs one step after another. Not thread-safe, but for what says so.
class DirectRun {
 public:
  struct Step {
    int64_t id = 0;
    std::span<const Tensor> feeds;  // in the order of DirectGraph::io, as are the fetches
    std::span<Tensor> fetches;
    CancellationManager* cancellation = nullptr;
  };
  // Told once, when nothing of the step runs any more.
  struct Done {
    void (*call)(void* owner, Status status) = nullptr;
    void* owner = nullptr;
  };
  virtual ~DirectRun() = default;

  // The step takes part on the caller's thread, and may have ended when this returns. All that
  // `step` points to lives until it has.
  virtual void Start(const Step& step, const pb::RunOptions& options, Done done) = 0;
  // First thing when it has ended: what it kept for itself on its device goes.
  virtual void Finish(bool failed) = 0;
  // Adds what it recorded, if it was to; once, after Finish.
  virtual void MoveStats(pb::RunMetadata* metadata) = 0;
  // Makes it ready for the next step.
  virtual void Clear() = 0;

  // Adds what the step waits for; nothing before it has begun. From any thread before Clear.
  virtual void ListWaits(pb::TaskWaits* waits) const = 0;
  // What still runs although it is cancelled, for people. From any thread between
  // Start and Clear.
  virtual std::string DescribeOverdue() const = 0;
  // Warns that the step goes on without its caller. `request_id` as RunStepArgs'.
  virtual void LogOverdue(int64_t request_id, const std::string& description) const = 0;
};

// Thread-safe. Outlives its runs.
class DirectGraph {
 public:
  virtual ~DirectGraph() = default;
  virtual const DirectIo& io() const = 0;
  virtual std::unique_ptr<DirectRun> NewRun() const = 0;
  // What the session of the graph waits for before its devices go; may be null.
  virtual std::shared_ptr<UseCount> step_count() const = 0;
  // The graph as its device runs it, if it was registered to be kept.
  virtual Status Export(pb::GraphDef* graph) const = 0;
};

}  // namespace millrace

#endif  // SESSION_DIRECT_RUN_H_
