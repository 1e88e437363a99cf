// SPDX-License-Identifier: Apache-2.0
// The public Session: the client side of whatever master its target names.
#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/preemption/on_preemption.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "frontend/graph_builder.h"
#include "graph/graph_def_io.h"
#include "graph/graph_def_size.h"
#include "graph/node_batch.h"
#include "millrace/preemption.h"
#include "millrace/session.h"
#include "runtime/feed_spec.h"
#include "runtime/gpu.h"
#include "runtime/known_runs.h"
#include "runtime/local_cluster.h"
#include "session/client_session.h"

namespace millrace {
namespace {

// InvalidArgument, by the name that the user gave it, unless `value` is at least `least`.
Status CheckAtLeast(int64_t least, int64_t value, std::string_view name) {
  if (value >= least) return OkStatus();
  return errors::InvalidArgument(name, " is ", value, "; it must be at least ", least);
}

Status CheckOptions(const SessionOptions& options) {
  MR_RETURN_IF_ERROR(CheckAtLeast(1, options.num_cpu_devices, "SessionOptions.num_cpu_devices"));
  MR_RETURN_IF_ERROR(CheckAtLeast(-1, options.inter_op_threads, "SessionOptions.inter_op_threads"));
  MR_RETURN_IF_ERROR(CheckAtLeast(-1, options.intra_op_threads, "SessionOptions.intra_op_threads"));
  MR_RETURN_IF_ERROR(
      CheckAtLeast(0, options.step_memory_limit, "SessionOptions.step_memory_limit (bytes)"));
  MR_RETURN_IF_ERROR(
      CheckAtLeast(0, options.start_timeout.count(), "SessionOptions.start_timeout (ms)"));
  MR_RETURN_IF_ERROR(
      CheckAtLeast(0, options.step_timeout.count(), "SessionOptions.step_timeout (ms)"));
  for (const InterOpPool& pool : options.inter_op_pools) {
    MR_RETURN_IF_ERROR(CheckAtLeast(-1, pool.threads, "SessionOptions.inter_op_pools: threads"));
  }
  return OkStatus();
}

Status CheckOptions(const RunOptions& options) {
  if (options.timeout.count() >= 0 && options.inter_op_pool >= -1) [[likely]]
    return OkStatus();
  MR_RETURN_IF_ERROR(CheckAtLeast(0, options.timeout.count(), "RunOptions.timeout (ms)"));
  return CheckAtLeast(-1, options.inter_op_pool, "RunOptions.inter_op_pool");
}

StatusOr<pb::ConfigProto> ToConfig(const SessionOptions& options) {
  MR_RETURN_IF_ERROR(CheckOptions(options));
  pb::ConfigProto config;
  const GpuFields gpus = GpuFieldsOf(options);
  MR_RETURN_IF_ERROR(ToConfig(gpus, &config));
  if (!options.target.empty() && gpus != GpuFields()) {
    return errors::InvalidArgument(
        "num_gpu_devices, gpu_memory_fraction, gpu_allow_growth and visible_gpus are for sessions "
        "in this process; the server at ",
        options.target, " uses the GPUs that its ServerOptions, or its flags, say");
  }
  config.set_allow_soft_placement(options.allow_soft_placement);
  config.set_log_device_placement(options.log_device_placement);
  config.set_isolate_session_state(options.isolate_session_state);
  config.mutable_graph_options()->set_enable_bfloat16_sendrecv(options.bfloat16_transfers);
  config.mutable_graph_options()->set_enable_recv_scheduling(options.schedule_receives);
  for (const std::string& filter : options.device_filters) config.add_device_filters(filter);
  (*config.mutable_device_count())["CPU"] = options.num_cpu_devices;
  config.set_inter_op_parallelism_threads(options.inter_op_threads);
  config.set_intra_op_parallelism_threads(options.intra_op_threads);
  for (const InterOpPool& pool : options.inter_op_pools) {
    pb::ThreadPoolOptionProto* const wanted = config.add_session_inter_op_thread_pool();
    wanted->set_num_threads(pool.threads);
    wanted->set_global_name(pool.name);
  }
  if (options.step_memory_limit != 0) {
    config.mutable_gpu_options()->mutable_experimental()->set_gpu_host_mem_limit_in_mb(
        static_cast<float>(static_cast<double>(options.step_memory_limit) / (1 << 20)));
  }
  if (!options.rewrite_graph) {
    config.mutable_graph_options()->mutable_optimizer_options()->set_opt_level(
        pb::OptimizerOptions::L0);
  }
  return config;
}

pb::RunOptions ToRunOptions(const RunOptions& options) {
  pb::RunOptions result;
  result.set_timeout_in_ms(options.timeout.count());
  result.set_inter_op_thread_pool(options.inter_op_pool);
  if (options.trace) result.set_trace_level(pb::RunOptions::FULL_TRACE);
  result.set_output_partition_graphs(options.partition_graphs);
  return result;
}

bool IsPlain(const RunOptions& options) {
  return options.timeout.count() == 0 && options.inter_op_pool == 0 && !options.trace &&
         !options.partition_graphs;
}

Status ToMetadata(const pb::RunMetadata& from, RunMetadata* to) {
  to->step_stats = from.has_step_stats() ? from.step_stats().SerializeAsString() : "";
  to->partition_graphs.clear();
  for (const pb::GraphDef& graph : from.partition_graphs()) {
    MR_RETURN_IF_ERROR(SerializeGraphDef(graph, &to->partition_graphs.emplace_back()));
  }
  return OkStatus();
}

Status CheckHandle(const Operation& op, const GraphState* graph, const char* what) {
  if (!op.valid()) return errors::InvalidArgument("a ", what, " is not valid");
  if (op.graph() != graph) {
    return errors::InvalidArgument("the ", what, " '", op.name(), "' belongs to another graph");
  }
  return OkStatus();
}

// At a server, which waits for other tasks: no longer than until this process is to end. After a
// notice there is a moment left, for a session that saves.
StatusOr<std::unique_ptr<ClientSession>> OpenUnlessPreempted(
    std::shared_ptr<MasterInterface> master, pb::GraphDef graph, ClientSession::Options options) {
  constexpr std::chrono::milliseconds kAfterNotice{2'000};
  CancellationManager cancellation;
  std::optional<OnPreemption> cancel;
  if (CheckPreemption().ok()) {
    cancel.emplace([&] { cancellation.StartCancel(CheckPreemption()); });
  } else if (options.start_timeout.count() <= 0 || options.start_timeout > kAfterNotice) {
    options.start_timeout = kAfterNotice;
  }
  auto session =
      ClientSession::Create(std::move(master), std::move(graph), std::move(options), &cancellation);
  cancel.reset();
  const Status& status = session.status();
  const Status notice = CheckPreemption();
  if (notice.ok() || !(errors::IsCancelled(status) || errors::IsDeadlineExceeded(status) ||
                       errors::IsUnavailable(status))) {
    return session;
  }
  return Annotate(notice, StrCat("; no session was made: ", Message(status)));
}

Status MovedFrom(std::string_view what) {
  return errors::FailedPrecondition("this ", what, " was moved from or never made");
}

// A session as its callables share it, which may outlive the Session.
struct SharedSession {
  std::shared_ptr<GraphState> graph;
  bool is_remote = false;
  std::unique_ptr<ClientSession> session;
  KnownRuns known;
  std::atomic<bool> closed{false};
  Mutex mu;  // one extension at a time
  int sent_ids ABSL_GUARDED_BY(mu) = 0;

  Status CheckHandles(std::span<const Feed> feeds, std::span<const Output> fetches,
                      std::span<const Operation> targets) const {
    for (const Feed& feed : feeds) {
      MR_RETURN_IF_ERROR(CheckHandle(feed.first.op(), graph.get(), "feed"));
    }
    for (const Output& fetch : fetches)
      MR_RETURN_IF_ERROR(CheckHandle(fetch.op(), graph.get(), "fetch"));
    for (const Operation& op : targets) MR_RETURN_IF_ERROR(CheckHandle(op, graph.get(), "target"));
    return OkStatus();
  }

  Status CheckOpen() const {
    if (!closed.load(std::memory_order_acquire)) [[likely]]
      return OkStatus();
    return errors::FailedPrecondition("Session is closed.");
  }

  Status Close() {
    closed.store(true, std::memory_order_release);
    return session->Close();
  }

  Status Send(int first_id) {
    if (!is_remote) {
      MR_ASSIGN_OR_RETURN(NodeBatch nodes, CopyNodes(*graph->graph, first_id));
      return session->Extend(std::move(nodes));
    }
    MR_RETURN_IF_ERROR(CheckMessageSize(*graph->graph, first_id));
    pb::GraphDef added;
    MR_RETURN_IF_ERROR(
        ExportGraphDef(*graph->graph, {.origins = true, .first_id = first_id}, &added));
    return session->Extend(std::move(added));
  }

  // Sends the nodes made since the last call.
  Status SendNewNodes() {
    MutexLock lock(&mu);
    const int ids = graph->graph->num_node_ids();
    if (ids == sent_ids) return OkStatus();
    MR_RETURN_IF_ERROR(graph->status);
    MR_RETURN_IF_ERROR(Send(sent_ids));
    sent_ids = ids;
    return OkStatus();
  }
};

}  // namespace

struct Session::Impl {
  std::shared_ptr<SharedSession> shared;
  ~Impl() {
    const Status status = shared->Close();
    if (!status.ok()) {
      MR_LOG(kInfo, "the session ", shared->session->handle(),
             " was not closed: ", Message(status));
    }
  }
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

StatusOr<Session> Session::Create(Graph& graph, const SessionOptions& options) {
  MR_RETURN_IF_ERROR(graph.status());
  MR_ASSIGN_OR_RETURN(const pb::ConfigProto config, ToConfig(options));
  MR_ASSIGN_OR_RETURN(std::shared_ptr<MasterInterface> master,
                      ConnectTarget(options.target, config, options.dump_dir, options.credentials));
  auto shared = std::make_shared<SharedSession>();
  shared->graph = graph.shared_state();
  shared->is_remote = !options.target.empty();
  const DataflowGraph& nodes = *graph.state()->graph;
  ClientSession::Options client;
  client.config = config;
  client.start_timeout = options.start_timeout;
  client.step_timeout = options.step_timeout;
  if (shared->is_remote) {
    MR_RETURN_IF_ERROR(CheckMessageSize(nodes, 0));
    pb::GraphDef def;
    MR_RETURN_IF_ERROR(ExportGraphDef(nodes, {.origins = true}, &def));
    MR_ASSIGN_OR_RETURN(shared->session,
                        OpenUnlessPreempted(std::move(master), std::move(def), client));
  } else {
    MR_ASSIGN_OR_RETURN(NodeBatch copies, CopyNodes(nodes, 0));
    MR_ASSIGN_OR_RETURN(shared->session,
                        ClientSession::Create(std::move(master), std::move(copies), client));
  }
  {
    MutexLock lock(&shared->mu);
    shared->sent_ids = nodes.num_node_ids();
  }
  return Session(std::unique_ptr<Impl>(new Impl{std::move(shared)}));
}

namespace {

StatusOr<std::vector<Tensor>> RunKnown(const KnownRuns::Known& known, std::span<const Feed> feeds) {
  for (std::size_t i = 0; i < feeds.size(); ++i) {
    MR_RETURN_IF_ERROR(known.feeds[i].Check(feeds[i].second));
  }
  const Tensor* const first = feeds.empty() ? nullptr : &feeds[0].second;
  std::vector<Tensor> fetches;
  MR_RETURN_IF_ERROR(known.run->Run(std::chrono::milliseconds(0),
                                    TensorSpan(first, sizeof(Feed), feeds.size()), &fetches));
  return fetches;
}

}  // namespace

StatusOr<std::vector<Tensor>> Session::Run(std::span<const Feed> feeds,
                                           std::span<const Output> fetches,
                                           std::span<const Operation> targets,
                                           const RunOptions& options, RunMetadata* metadata) {
  if (!impl_) return MovedFrom("session");
  SharedSession& shared = *impl_->shared;
  MR_RETURN_IF_ERROR(shared.CheckOpen());
  MR_RETURN_IF_ERROR(CheckOptions(options));
  MR_RETURN_IF_ERROR(shared.SendNewNodes());
  MR_RETURN_IF_ERROR(shared.CheckHandles(feeds, fetches, targets));
  const bool is_plain = IsPlain(options);
  const KnownRuns::Known* const known =
      is_plain ? shared.known.Find(feeds, fetches, targets) : nullptr;
  if (known != nullptr && known->run != nullptr) {
    if (metadata != nullptr) *metadata = RunMetadata();
    return RunKnown(*known, feeds);
  }
  ClientSession::RunRequest request;
  for (const auto& [output, value] : feeds) {
    FeedSpec spec(output);
    MR_RETURN_IF_ERROR(spec.Check(value));
    request.feeds.emplace_back(std::move(spec.name), value);
  }
  for (const Output& output : fetches) request.fetches.push_back(output.name());
  for (const Operation& op : targets) request.targets.push_back(op.name());
  request.options = ToRunOptions(options);
  pb::RunMetadata run_metadata;
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> values,
                      shared.session->Run(std::move(request), &run_metadata));
  if (metadata != nullptr) MR_RETURN_IF_ERROR(ToMetadata(run_metadata, metadata));
  if (is_plain && known == nullptr) {
    shared.known.Remember(shared.session.get(), feeds, fetches, targets);
  }
  return values;
}

StatusOr<Tensor> Session::Eval(const Output& fetch) {
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> values, Run({}, std::span(&fetch, 1)));
  return std::move(values[0]);
}

Status Session::RunTargets(std::initializer_list<Operation> targets) {
  return Run({}, {}, std::span(targets.begin(), targets.size())).status();
}

Status Session::Close() { return impl_ ? impl_->shared->Close() : MovedFrom("session"); }

struct Callable::Impl {
  std::shared_ptr<SharedSession> shared;
  int64_t handle = -1;
  std::shared_ptr<PreparedRun> prepared;  // null: called by its handle
  std::vector<FeedSpec> feeds;
  ~Impl() {
    // A session that is closed has released it.
    if (shared->CheckOpen().ok()) shared->session->ReleaseCallable(handle).IgnoreError();
  }
};

Callable::Callable() = default;
Callable::~Callable() = default;
Callable::Callable(Callable&&) noexcept = default;
Callable& Callable::operator=(Callable&&) noexcept = default;

StatusOr<Callable> Session::MakeCallable(std::span<const Output> feeds,
                                         std::span<const Output> fetches,
                                         std::span<const Operation> targets,
                                         const RunOptions& options) {
  if (!impl_) return MovedFrom("session");
  SharedSession& shared = *impl_->shared;
  MR_RETURN_IF_ERROR(shared.CheckOpen());
  MR_RETURN_IF_ERROR(CheckOptions(options));
  MR_RETURN_IF_ERROR(shared.SendNewNodes());
  pb::CallableOptions request;
  for (const Output& output : feeds) {
    MR_RETURN_IF_ERROR(CheckHandle(output.op(), shared.graph.get(), "feed"));
    request.add_feed(output.name());
  }
  for (const Output& output : fetches) {
    MR_RETURN_IF_ERROR(CheckHandle(output.op(), shared.graph.get(), "fetch"));
    request.add_fetch(output.name());
  }
  for (const Operation& op : targets) {
    MR_RETURN_IF_ERROR(CheckHandle(op, shared.graph.get(), "target"));
    request.add_target(op.name());
  }
  *request.mutable_run_options() = ToRunOptions(options);
  MR_ASSIGN_OR_RETURN(const int64_t handle, shared.session->MakeCallable(std::move(request)));
  Callable callable;
  callable.impl_ = std::make_unique<Callable::Impl>();
  callable.impl_->shared = impl_->shared;
  callable.impl_->handle = handle;
  callable.impl_->prepared = shared.session->Prepare(handle);
  for (const Output& output : feeds) callable.impl_->feeds.emplace_back(output);
  return callable;
}

StatusOr<std::vector<Tensor>> Callable::Run(std::span<const Tensor> feeds,
                                            const RunOptions& options) const {
  std::vector<Tensor> fetches;
  MR_RETURN_IF_ERROR(Run(feeds, &fetches, options));
  return fetches;
}

Status Callable::Run(std::span<const Tensor> feeds, std::vector<Tensor>* fetches,
                     const RunOptions& options) const {
  if (!impl_) return MovedFrom("callable");
  MR_RETURN_IF_ERROR(impl_->shared->CheckOpen());
  MR_RETURN_IF_ERROR(CheckOptions(options));
  // The master checks their number.
  for (std::size_t i = 0; i < std::min(feeds.size(), impl_->feeds.size()); ++i) {
    MR_RETURN_IF_ERROR(impl_->feeds[i].Check(feeds[i]));
  }
  if (impl_->prepared != nullptr) return impl_->prepared->Run(options.timeout, feeds, fetches);
  return impl_->shared->session->RunCallable(impl_->handle, feeds, fetches, nullptr,
                                             options.timeout);
}

}  // namespace millrace
