// SPDX-License-Identifier: Apache-2.0
// Strategies: where the replicas of a model run, where its variables lie, and how what replicas
// compute becomes one.
//
//   auto strategy = millrace::MakeStrategy("mirrored", {.replicas = 2});
//   Model model(layers::Sequential({layers::Dense(10)}), {.strategy = *strategy});
//
// Fit, Evaluate and Predict of such a model run on every replica; loops written by hand use Run and
// Reduce. docs/strategies.md is the guide.
//
// A strategy adds nodes to graphs: what it does to values takes place when these run. Synchronous
// training: a step ends for all replicas together.
#ifndef MILLRACE_STRATEGY_H_
#define MILLRACE_STRATEGY_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/cluster.h"
#include "millrace/cluster_resolver.h"
#include "millrace/collectives.h"
#include "millrace/distributed_values.h"
#include "millrace/graph.h"
#include "millrace/partitioners.h"
#include "millrace/server.h"
#include "millrace/session.h"
#include "millrace/status.h"

namespace millrace {

class ClusterCoordinator;  // millrace/cluster_coordinator.h

// Options of MakeStrategy and the functions it calls; each strategy looks at its own.
struct StrategyOptions {
  // Replicas of this process; 0: one for each of `devices`, or one. Without devices they are CPU
  // devices of their own, of which a session in this process gets as many.
  int replicas = 0;
  std::vector<std::string> devices{};  // "/device:GPU:0"; InvalidArgument if one is named twice
  // Where central_storage keeps variables.
  std::string parameter_device = "/device:CPU:0";
  // multi_worker_mirrored, parameter_server: the cluster and which task this process is; empty:
  // what ResolveFromEnvironment says.
  ResolvedTask task{};
  // The server that sessions are opened at; "": a server of this process' own task, which the
  // strategy starts and keeps.
  std::string target{};
  // What that own server is made with: credentials, `insecure`, cluster_id ("": that of
  // MILLRACE_CLUSTER_ID), peer_timeout. Its cluster, task and devices are not looked at.
  ServerOptions server{};
  CommunicationOptions communication{};  // of the collectives between workers
  // How long multi_worker_mirrored waits, when it is made, for all workers to make theirs.
  std::chrono::milliseconds start_timeout{600'000};
  // parameter_server: which ps a variable is put on; empty: in turn.
  PsStrategy placement{};
  // parameter_server: cuts the tables of models' layers (layers::Embedding), whose parts lie on one
  // parameter server after the other; empty: none is cut.
  Partitioner variable_partitioner{};
  // The same weights bit for bit, however many replicas and workers there are: each global batch is
  // cut into `micro_batches` pieces, which count as replicas (num_replicas_in_sync) and of which
  // each device takes as many, and what they make is added in the order of the pieces. So much
  // slower as small pieces are. InvalidArgument unless the pieces can be dealt out equally.
  bool deterministic = false;
  int micro_batches = 4;  // pieces of a global batch; looked at if `deterministic`
};

// Not thread-safe; one graph is built with it at a time. Where several workers train together, all
// of them must make the same calls in the same order.
class Strategy {
 public:
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  const std::string& name() const { return layout_.name; }  // "mirrored"

  // The name, the devices and, with several workers, which of them this is.
  std::string Description() const;
  // Replicas of all workers.
  int num_replicas_in_sync() const { return layout_.replicas_in_sync; }
  // Those of this process, and the number of the first of them among all.
  int num_local_replicas() const { return static_cast<int>(layout_.devices.size()); }
  // Number of this process' first replica among all.
  int first_replica() const { return layout_.first_replica; }
  // Processes that each build and run a graph of their own.
  int num_workers() const {
    return layout_.replicas_of_workers.empty()
               ? 1
               : static_cast<int>(layout_.replicas_of_workers.size());
  }
  // The number of this one.
  int worker() const { return layout_.worker; }
  // How many replicas each of them has, which need not be as many: those of a worker are numbered
  // one after the other, behind those of the workers before it.
  std::vector<int> replicas_of_workers() const {
    return layout_.replicas_of_workers.empty() ? std::vector<int>{num_local_replicas()}
                                               : layout_.replicas_of_workers;
  }
  // Whether this process writes for all.
  bool is_chief() const { return layout_.is_chief; }
  // As requested of the placer, "" for one that it chooses.
  const std::vector<std::string>& replica_devices() const { return layout_.devices; }

  // ---- Where nodes are put -----------------------------------------------------------
  // What belongs to no replica.
  Scope RootScope(const Scope& scope) const;
  // Where variables are put that are not mirrored: the root device unless the strategy chooses
  // others.
  Scope VariableScope(const Scope& scope) const;
  // Replica first_replica() + `local`.
  Scope ReplicaScope(const Scope& scope, int local) const;
  // Whether a model's weights lie on the device of each replica, and change alike.
  bool mirrors_variables() const { return layout_.mirrors_variables; }
  // Whether sums are those of fixed pieces of each batch in a fixed order.
  bool is_deterministic() const { return layout_.is_deterministic; }
  // Workers and parameter servers; without jobs under other strategies than parameter_server.
  const ClusterSpec& cluster() const { return layout_.cluster; }
  // How the tables of models are cut; empty: not at all.
  const Partitioner& variable_partitioner() const { return layout_.variable_partitioner; }
  // Gives a session the devices that the replicas run on. InvalidArgument, naming the option, if it
  // says something else already; FailedPrecondition if a coordinator leads, which has the sessions.
  Status ConfigureSession(SessionOptions* options) const;

  // ---- Between workers ---------------------------------------------------------------
  // Sums over all workers, the same bits on each; the values themselves with one worker. Shapes
  // must be known and floats or integers (InvalidArgument in the graph's status).
  virtual std::vector<Output> SumOverWorkers(const Scope& scope, std::span<const Output> values,
                                             std::source_location where);
  // What all workers have, one behind the other along the first axis, which may be of another size
  // in each; the values themselves with one worker. Of floats and integers.
  virtual std::vector<Output> GatherOverWorkers(const Scope& scope, std::span<const Output> values,
                                                std::source_location where);
  // The chief's value; the value itself with one worker.
  virtual Output FromChief(const Scope& scope, const Output& value, std::source_location where);

  // ---- Loops by hand -----------------------------------------------------------------
  // What `function` makes for each replica: result i of every replica together. It is called once
  // for each replica, in its scope, on a thread of its own while all others stand still.
  // InvalidArgument if replicas make different numbers of values, or one ends where others wait in
  // MergeCall.
  using ReplicaFunction = std::function<std::vector<Output>(ReplicaContext& context)>;
  // Results of `function` for the replicas of this process, by result.
  StatusOr<std::vector<PerReplica>> Run(
      const Scope& scope, const ReplicaFunction& function,
      std::source_location where = std::source_location::current());
  // One value of those of all replicas, added in the order of the replicas. InvalidArgument in the
  // graph's status for the mean of integers.
  Output Reduce(const Scope& scope, ReduceOp op, const PerReplica& values,
                std::source_location where = std::source_location::current());
  // Along an axis of each value too; a mean is over all elements, however many a replica has.
  Output Reduce(const Scope& scope, ReduceOp op, const PerReplica& values, int axis,
                std::source_location where = std::source_location::current());
  // Sums over all replicas of all workers, on the first of this process, in the order of the
  // replicas of each worker; in that of all replicas where the strategy is deterministic. A value
  // that is not valid counts as none.
  std::vector<Output> SumOverReplicas(const Scope& scope, std::span<const PerReplica> values,
                                      std::source_location where);
  // The same of gradients, which travel between workers as CommunicationOptions::compression says.
  std::vector<Output> SumGradients(const Scope& scope, std::span<const PerReplica> values,
                                   std::source_location where);
  // The values of all replicas of all workers one behind the other along an axis, which may be of
  // another size in each. Outside of replicas.
  Output Gather(const Scope& scope, const PerReplica& values, int axis = 0,
                std::source_location where = std::source_location::current());
  // The values of this process' replicas one behind the other along an axis.
  Output GatherLocal(const Scope& scope, const PerReplica& values, int axis = 0,
                     std::source_location where = std::source_location::current());
  // The rows of a global batch for each replica of this process: the first replicas get
  // ceil(rows / replicas) until there are none left, so that the last may be empty.
  PerReplica Split(const Scope& scope, const Output& batch,
                   std::source_location where = std::source_location::current());
  // The same for the replicas of this process alone, whatever other workers do.
  PerReplica SplitLocally(const Scope& scope, const Output& batch,
                          std::source_location where = std::source_location::current());
  // One value for each replica; `value` is called with its number among all.
  PerReplica ValuesOf(const Scope& scope,
                      const std::function<Output(const Scope& scope, int replica)>& value);
  // Copies on every replica's device: "<name>" and "<name>/replica_<i>". InvalidArgument in the
  // graph's status for kNone, and for the mean of integers.
  DistributedVariable MakeVariable(const Scope& scope, std::string_view name,
                                   const Output& initial_value,
                                   const DistributedVariableOptions& options = {},
                                   std::source_location where = std::source_location::current());

 protected:
  // Placement that a derived strategy gives its base.
  struct Layout {
    std::string name;                        // "mirrored"
    std::vector<std::string> devices;        // of this process' replicas
    int replicas_in_sync = 1;                // of all workers
    int first_replica = 0;                   // number of this process' first one among all
    std::vector<int> replicas_of_workers{};  // empty: one worker, which has all
    int worker = 0;                          // this process
    bool is_chief = true;                    // this process writes for all
    std::string root_device{};               // of what belongs to no replica
    DeviceFunction variable_device{};        // empty: variables are on root_device
    Partitioner variable_partitioner{};      // of tables; empty: none is cut
    std::string target{};                    // of sessions; "": in this process
    std::string device_filter{};             // of sessions; "": none
    int cpu_devices = 0;                     // that a session in this process needs; 0: as it says
    bool mirrors_variables = false;          // weights lie on every replica's device
    bool is_deterministic = false;           // sums are in a fixed order
    // Of gradients between workers.
    GradientCompression compression = GradientCompression::kNone;
    ClusterSpec cluster{};  // that a coordinator may lead
    bool is_led = false;    // by a coordinator
  };
  // For derived classes. `led`: what it becomes when a coordinator is made for it; nothing: it
  // cannot have one.
  explicit Strategy(Layout layout, std::optional<Layout> led = std::nullopt)
      : layout_(std::move(layout)), led_(std::move(led)) {}
  const Layout& layout() const { return layout_; }  // as it was given

 private:
  PerReplica Split(const Scope& scope, const Output& batch, int first, int replicas,
                   std::source_location where);
  std::vector<Output> SumLocally(const Scope& scope, std::span<const PerReplica> values) const;
  std::vector<Output> SumInOrder(const Scope& scope, std::span<const PerReplica> values,
                                 std::source_location where);

  friend class ClusterCoordinator;
  Layout layout_;
  const std::optional<Layout> led_;
  std::weak_ptr<ClusterCoordinator> coordinator_;
};

// One replica, wherever the placer puts it: what a model without a strategy does.
std::shared_ptr<Strategy> DefaultStrategy();
// Variables and computation on devices[0], CPU 0 if none is given.
StatusOr<std::shared_ptr<Strategy>> OneDeviceStrategy(const StrategyOptions& options = {});
// A replica on every device, in one process. Weights lie on every device; those of the first are
// what is updated and saved, and the others get their values at the end of a step.
StatusOr<std::shared_ptr<Strategy>> MirroredStrategy(const StrategyOptions& options = {});
// The same with variables on `parameter_device`, or beside the only replica.
StatusOr<std::shared_ptr<Strategy>> CentralStorageStrategy(const StrategyOptions& options = {});
// Chiefs and workers of a cluster, each with replicas on devices of its own, which may be another
// number on each; gradients are summed between them. Every process runs the program. Mirrored where
// there is no cluster.
//
// Waits for all workers to make theirs, which tell each other how many replicas they have.
// DeadlineExceeded after start_timeout and Unavailable name those that did not come;
// InvalidArgument, at all workers, those that ask for something else (`deterministic`,
// `micro_batches`, packs or implementation of collectives). What Server says, if one is started.
StatusOr<std::shared_ptr<Strategy>> MultiWorkerMirroredStrategy(
    const StrategyOptions& options = {});
// One process, with a replica on every worker of the cluster and variables on its parameter
// servers. InvalidArgument "There must be at least one ps." and "... one worker.". Once a
// ClusterCoordinator has been made for it, it has one replica, on whichever worker runs a function.
StatusOr<std::shared_ptr<Strategy>> ParameterServerStrategy(const StrategyOptions& options = {});

// By name: default, one_device, mirrored, central_storage, multi_worker_mirrored, parameter_server.
// InvalidArgument lists them; Unimplemented for tpu, saying what is missing.
StatusOr<std::shared_ptr<Strategy>> MakeStrategy(std::string_view name,
                                                 const StrategyOptions& options = {});

}  // namespace millrace

#endif  // MILLRACE_STRATEGY_H_
