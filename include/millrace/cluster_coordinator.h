// SPDX-License-Identifier: Apache-2.0
// Asynchronous training led by one program: functions are scheduled, whichever worker is free runs
// them, and workers may come and go. docs/coordinator.md tells what is retried, delivered and lost.
#ifndef MILLRACE_CLUSTER_COORDINATOR_H_
#define MILLRACE_CLUSTER_COORDINATOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/cluster.h"
#include "millrace/graph.h"
#include "millrace/session.h"
#include "millrace/status.h"

namespace millrace {

class Dataset;        // millrace/data.h
struct InputContext;  // millrace/distributed_values.h
class Strategy;       // millrace/strategy.h

// What a worker computes: values for `inputs` (placeholders) are given to every Schedule, `outputs`
// come back, `targets` are run.
struct FunctionParts {
  std::vector<Output> inputs{};      // placeholders, in the order of the tensors given to Schedule
  std::vector<Output> outputs{};     // fetched, in the order of what RemoteValue::Fetch returns
  std::vector<Operation> targets{};  // run in the same step, with no values
};
// `worker` is a scope on whichever worker runs the function ("/job:worker", no task).
using WorkerFunctionBuilder = std::function<FunctionParts(const Scope& worker)>;

// What every worker has for itself: iterators, tables, counters.
struct PerWorkerParts {
  std::vector<Output> values{};           // for functions to use; computed where the function runs
  std::vector<Operation> initializers{};  // run at each worker before the first use
};
// Called once, at once; `worker` is the scope that WorkerFunctionBuilder gets.
using PerWorkerBuilder = std::function<PerWorkerParts(const Scope& worker)>;

// How a ClusterCoordinator is made. Create refuses times that are not positive, but for
// `cancel_grace`.
struct CoordinatorOptions {
  // Its jobs "ps" and "worker"; both must have a task.
  ClusterSpec cluster{};
  // Of the sessions at the workers; target, device_filters and timeouts are the coordinator's own.
  SessionOptions session{};
  // Functions that one worker has at a time. More than one hides the way there and back.
  int max_in_flight = 1;
  // Functions that wait; Schedule blocks while there are so many.
  std::size_t queue_capacity = 262'144;

  // How long calls of the coordinator block before they end with DeadlineExceeded, which says what
  // was waited for. Nothing is cancelled by it; a call may be made again.
  std::chrono::milliseconds connect_timeout{60'000};    // Create, Run (for a worker), Recover
  std::chrono::milliseconds schedule_timeout{300'000};  // Schedule, while the queue is full
  std::chrono::milliseconds join_timeout{3'600'000};    // Join, if it is given none
  std::chrono::milliseconds fetch_timeout{300'000};     // Fetch, if it is given none
  std::chrono::milliseconds function_timeout{300'000};  // a run; its end is the function's error

  // Every task is asked for a sign of life so often.
  std::chrono::milliseconds heartbeat{2'000};
  // A worker, a parameter server, that gives none for so long is lost; one that refuses
  // connections, or has restarted, at once (a parameter server is asked again for a second before).
  std::chrono::milliseconds worker_timeout{30'000};
  // The same time without a sign of life, of a parameter server.
  std::chrono::milliseconds ps_timeout{10'000};
  // After an error, functions that still run are given so long to end by themselves.
  std::chrono::milliseconds cancel_grace{200};
  // A function that was lost with its worker so often is an error: it may be what kills them.
  int max_attempts = 10;

  // Run by Recover (at a worker) when a parameter server has lost its variables: gives all of them
  // values again. `tasks` are those that lost theirs: "/job:ps/task:0". It uses the session only,
  // not the coordinator, and adds no nodes.
  std::function<Status(Session& session, const std::vector<std::string>& tasks)> restore{};
};

struct RemoteResult;  // coordinator/call.h

// A scheduled function's result. Cheap to copy; may outlive the coordinator. Thread-safe.
class RemoteValue {
 public:
  // Whether there is a result: not yet, the outputs, or an error (of its own, or Cancelled).
  enum class State { kNotReady, kReady, kFailed };
  RemoteValue();  // of nothing: Fetch says FailedPrecondition
  // Tells how far it is, without blocking; kFailed for a value of nothing.
  State state() const;
  // Blocks until there is a result: the outputs; the function's own error; Cancelled "The
  // corresponding function is cancelled. Please reschedule the function." if another error came
  // before it; DeadlineExceeded after `timeout` (0: CoordinatorOptions.fetch_timeout). As often as
  // wanted. A result is here before the function counts as done: no lost worker takes it away.
  StatusOr<std::vector<Tensor>> Fetch(
      std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) const;
  // The worker that computed it; -1 if there is no result.
  int worker() const;

 private:
  friend class ClusterCoordinator;
  explicit RemoteValue(std::shared_ptr<const RemoteResult> result);
  std::shared_ptr<const RemoteResult> result_;
};

// Names a function of one coordinator.
class WorkerFunction {
 public:
  WorkerFunction() = default;
  // Whether it names a function: false for one that AddFunction did not return.
  bool valid() const { return id_ >= 0; }

 private:
  friend class ClusterCoordinator;
  explicit WorkerFunction(int id) : id_(id) {}
  int id_ = -1;
};

// Counts of functions and losses since the coordinator was created.
struct CoordinatorStats {
  int64_t scheduled = 0;      // calls of Schedule that queued a function
  int64_t finished = 0;       // with a result; each scheduled function at most once
  int64_t failed = 0;         // with an error of their own
  int64_t cancelled = 0;      // because of another one's error, or at the end
  int64_t retried = 0;        // put back, because a worker or a session was lost
  int64_t sessions_lost = 0;  // of workers
  int64_t ps_lost = 0;        // times that a parameter server was lost
  int workers_ready = 0;      // with a session, now
};

// Thread-safe, but for destruction. The graph is the caller's to build until the first Schedule or
// Run; afterwards nodes are added through AddFunction and CreatePerWorkerValues only. It outlives
// the coordinator.
class ClusterCoordinator {
 public:
  // Returns when every parameter server answers; workers are waited for by what needs one.
  // InvalidArgument names an option that cannot be; DeadlineExceeded the servers that do not
  // answer.
  static StatusOr<std::unique_ptr<ClusterCoordinator>> Create(Graph& graph,
                                                              const CoordinatorOptions& options);
  // Leads the workers of a strategy, which is a parameter_server and is used with a coordinator
  // from now on: make it before anything is put into the graph through the strategy. Then
  // strategy->VariableScope(root) is where variables are made, one parameter server after the other
  // or as StrategyOptions::placement says, and within functions strategy->Run(worker, ...) calls
  // its function for the one replica of the worker. `options.cluster` is left out, or the
  // strategy's. A strategy has one coordinator: again, for the same graph, the one that there is
  // (whatever the options). InvalidArgument for a strategy of another kind; FailedPrecondition for
  // one that leads in another graph.
  static StatusOr<std::shared_ptr<ClusterCoordinator>> Create(
      Graph& graph, const std::shared_ptr<Strategy>& strategy,
      const CoordinatorOptions& options = {});
  // Cancels what is queued and what runs. Returns within seconds, even if a worker stands still.
  ~ClusterCoordinator();

  // The builder is called once, at once: every worker runs the same nodes. The graph's error, with
  // the line that made it, if it is wrong; InvalidArgument for a part of another graph.
  StatusOr<WorkerFunction> AddFunction(std::string_view name, const WorkerFunctionBuilder& builder);
  // The initializers are run at each worker before it runs a function that was added later, and
  // again when the worker has restarted. InvalidArgument if the builder makes a variable that is
  // not local: it would be initialised anew by every worker.
  StatusOr<std::vector<Output>> CreatePerWorkerValues(std::string_view name,
                                                      const PerWorkerBuilder& builder);
  // The components of the next element of a data set, of which each worker goes through one for
  // itself; a function that uses them takes one element in a run. `make` is called once, with one
  // pipeline and one replica: workers wait for nobody else's data. Errors as above. Where the data
  // end, OutOfRange is the function's error: repeat them.
  StatusOr<std::vector<Output>> CreatePerWorkerDataset(
      std::string_view name, const std::function<Dataset(const InputContext& context)>& make);
  // An int32 scalar: the number of the worker that computes it.
  StatusOr<Output> WorkerIndex();
  // Number of tasks of the job "worker" in the cluster, whether they can be reached or not.
  int num_workers() const;

  // Queues the function and returns. It runs at least once; its result is delivered once.
  // What was wrong with an earlier function is returned here, by Join or by Done, whichever is
  // called first, and once: by then everything queued is cancelled, nothing runs any more, and the
  // coordinator can be used again. A lost parameter server is such an error (Unavailable, its
  // name); the next call runs Recover if there is options.restore, and is FailedPrecondition until
  // Recover was called if there is none.
  StatusOr<RemoteValue> Schedule(const WorkerFunction& function,
                                 std::span<const Tensor> inputs = {});
  // Blocks until everything scheduled is done, or returns the first error, as Schedule does.
  // DeadlineExceeded (0: CoordinatorOptions.join_timeout) says what is queued, what runs where,
  // and which workers are lost.
  Status Join(std::chrono::milliseconds timeout = std::chrono::milliseconds(0));
  // Whether nothing is queued or runs. Errors as Schedule.
  StatusOr<bool> Done();
  // The outputs of several functions, in their order; the first error.
  StatusOr<std::vector<std::vector<Tensor>>> Fetch(
      std::span<const RemoteValue> values,
      std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) const;

  // Runs at some worker, now, beside the queue: initialises, restores, reads variables. Errors are
  // the caller's: what has begun to run is not run again. A worker that turns out to be lost before
  // that is passed over, within CoordinatorOptions.connect_timeout.
  StatusOr<std::vector<Tensor>> Run(std::span<const Feed> feeds, std::span<const Output> fetches,
                                    std::span<const Operation> targets = {});

  // After a parameter server was lost: waits until all answer, makes the sessions anew and runs
  // options.restore if variables were lost. Without options.restore they have to be given values
  // (Run) before functions are scheduled. OK if none was lost.
  Status Recover();

  // The counts by now; does not block on any worker.
  CoordinatorStats stats() const;

 private:
  struct Impl;
  explicit ClusterCoordinator(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // MILLRACE_CLUSTER_COORDINATOR_H_
