// SPDX-License-Identifier: Apache-2.0
// Running graphs: in this process (target ""), or on the server at "grpc://host:port".
//
// Lifetimes: a session keeps the nodes of its graph, so that the Graph may go first. A Callable
// may outlive its Session; it then says FailedPrecondition. So does what was moved from.
#ifndef MILLRACE_SESSION_H_
#define MILLRACE_SESSION_H_

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/credentials.h"
#include "millrace/graph.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Threads that nodes of steps run on.
struct InterOpPool {
  int threads = 0;     // 0: as many as inter_op_threads says; -1: none, the caller's thread
  std::string name{};  // shared with every session of the process that names it; "": its own
};

// What cannot be (a negative limit, no CPU) is InvalidArgument of Session::Create, by its name.
struct SessionOptions {
  std::string target{};  // "" or "grpc://host:port"
  // What a session at a server proves itself with.
  Credentials credentials{};
  // Whether the type and number of a device may be given up where it is not there or has no kernel
  // for a node; false: such a node is the error of Create, or of the run that sends it.
  bool allow_soft_placement = false;
  // A table of device, op and count in the log, and every node with the reason in a file
  // that the log names.
  bool log_device_placement = false;
  // At a server: whether variables and other resources are this session's own and end with it;
  // false: sessions share those of a task.
  bool isolate_session_state = false;
  // Tasks of a cluster that the session uses, such as {"/job:ps", "/job:worker/task:0"}: those that
  // one of these matches, and the one that it is opened at. Others need not be there. Empty: all.
  // InvalidArgument for what is no device name.
  std::vector<std::string> device_filters{};
  // Float tensors travel between tasks as bfloat16: half the bytes, three significant digits.
  bool bfloat16_transfers = false;
  // Tensors from other devices and tasks are fetched shortly before they are needed, not at the
  // start of a step: less memory, less slack. Graphs with loops are run as ever.
  bool schedule_receives = false;
  int num_cpu_devices = 1;   // in-process sessions
  int inter_op_threads = 0;  // 0: one per core; -1: run in the caller's thread
  // Threads that kernels share their work among, of in-process sessions; 0: one per core; -1: none,
  // kernels work in the thread that runs them.
  int intra_op_threads = 0;
  // GPUs of in-process sessions (docs/gpu.md), as device_count["GPU"] and gpu_options of the
  // ConfigProto. InvalidArgument, naming the field, for what cannot be, and with a server's target:
  // a server has its own.
  //
  // At most so many, of those that there are; 0: none; -1: as many as SetGpuOptions says, or all.
  int num_gpu_devices = -1;
  // What memory is taken and which GPUs are used. Where all three are as they are here,
  // SetGpuOptions decides. Sessions of a process share a GPU's memory: the first that uses it says
  // how it is taken.
  double gpu_memory_fraction = 0;  // of each GPU's memory, up to 1; 0: what is free
  bool gpu_allow_growth = false;   // as it is needed; else all of it at the first allocation
  std::string visible_gpus{};      // "1,0": which GPUs are /gpu:0, /gpu:1, ...; "": all
  // More than one pool, of which a run chooses one, so that long steps do not keep short ones
  // waiting. Empty: one pool, shared with other sessions of the process. In-process sessions.
  std::vector<InterOpPool> inter_op_pools{};
  // The most bytes that the tensors of one step may take on a device, 0: no limit. A step that
  // would take more ends with ResourceExhausted and a list of its biggest tensors.
  int64_t step_memory_limit = 0;
  std::chrono::milliseconds start_timeout{60'000};  // creating and extending
  std::chrono::milliseconds step_timeout{300'000};  // a run that names none; 0: none
  // Folds constants, merges equal nodes and takes away what changes nothing before a graph is
  // run (graph/rewrite); false: every node runs as it was written.
  bool rewrite_graph = true;
  // Where the session's graphs are written (docs/dumps.md), "": nowhere. In-process sessions
  // only: a server has ServerOptions.dump_dir.
  std::string dump_dir{};
};

// How one run is made. A negative timeout, and a pool that the session does not have, are
// InvalidArgument.
struct RunOptions {
  std::chrono::milliseconds timeout{0};  // 0: the session's
  // One of SessionOptions.inter_op_pools; -1: the calling thread, as far as the graph lets it.
  int inter_op_pool = 0;
  bool trace = false;             // step statistics in the metadata
  bool partition_graphs = false;  // partition graphs in the metadata
};

// Serialized TensorFlow messages, empty if not asked for.
struct RunMetadata {
  std::string step_stats;                     // StepStats
  std::vector<std::string> partition_graphs;  // GraphDef each
};

// An output of the session's graph and the value that a run takes for it. InvalidArgument for
// another type, or a shape that contradicts what is known of the output.
using Feed = std::pair<Output, Tensor>;

// A prepared run. Thread-safe, but for moves and destruction. FailedPrecondition when its session
// is closed or gone.
class Callable {
 public:
  Callable();
  ~Callable();
  // Takes the run over; the other one then says FailedPrecondition.
  Callable(Callable&&) noexcept;
  Callable& operator=(Callable&&) noexcept;
  // `feeds` in the order given to MakeCallable; the fetches come back in order.
  StatusOr<std::vector<Tensor>> Run(std::span<const Tensor> feeds,
                                    const RunOptions& options = {}) const;
  // The same; the values replace what `fetches` holds. A warm run in this process then takes no
  // memory of its own.
  Status Run(std::span<const Tensor> feeds, std::vector<Tensor>* fetches,
             const RunOptions& options = {}) const;

 private:
  friend class Session;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Thread-safe, but for moves and destruction. Close may be called while others run: what runs is
// cancelled, what comes later is FailedPrecondition.
class Session {
 public:
  // Sends the whole graph, which is placed at once: placement errors surface here. The graph
  // may grow afterwards; Run sends what is new first. InvalidArgument names an option that cannot
  // be, and the biggest constants of a graph for a server that is 2 GiB or more, which no message
  // may be (a session in this process takes it).
  static StatusOr<Session> Create(Graph& graph, const SessionOptions& options = {});
  // Takes the session over; calls of the other one are then FailedPrecondition.
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Computes the fetches (values in their order) and runs the targets.
  StatusOr<std::vector<Tensor>> Run(std::span<const Feed> feeds, std::span<const Output> fetches,
                                    std::span<const Operation> targets = {},
                                    const RunOptions& options = {},
                                    RunMetadata* metadata = nullptr);
  // The same of braced lists: Run({{x, value}}, {y}).
  StatusOr<std::vector<Tensor>> Run(std::initializer_list<Feed> feeds,
                                    std::initializer_list<Output> fetches,
                                    std::initializer_list<Operation> targets = {}) {
    return Run(std::span(feeds.begin(), feeds.size()), std::span(fetches.begin(), fetches.size()),
               std::span(targets.begin(), targets.size()));
  }
  // The same with options, and what they ask for in `metadata`, which may be null.
  StatusOr<std::vector<Tensor>> Run(std::initializer_list<Feed> feeds,
                                    std::initializer_list<Output> fetches,
                                    std::initializer_list<Operation> targets,
                                    const RunOptions& options, RunMetadata* metadata = nullptr) {
    return Run(std::span(feeds.begin(), feeds.size()), std::span(fetches.begin(), fetches.size()),
               std::span(targets.begin(), targets.size()), options, metadata);
  }
  // One fetch without feeds.
  StatusOr<Tensor> Eval(const Output& fetch);
  // Runs operations for their effects, without feeds and fetches.
  Status RunTargets(std::initializer_list<Operation> targets);
  // Prepares a run that is made many times: what is fed, in this order, what comes back and what
  // else is run. `options` are those of all its runs; Callable::Run may name another timeout.
  // InvalidArgument for handles that are not valid or of another graph.
  StatusOr<Callable> MakeCallable(std::span<const Output> feeds, std::span<const Output> fetches,
                                  std::span<const Operation> targets = {},
                                  const RunOptions& options = {});
  // Cancels what runs and releases the session's state on the servers. A second one does nothing.
  Status Close();

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // MILLRACE_SESSION_H_
