// SPDX-License-Identifier: Apache-2.0
#include "session/client_session.h"

#include <algorithm>
#include <utility>

#include "base/deadline_timer.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "session/async_join.h"

namespace millrace {

using std::chrono::milliseconds;

namespace {

// The master ends a step by its timeout and knows what it was waiting for; the call itself is
// given up only after this much more, if the master does not answer. It may ask other tasks for
// half a second, and wait half a second for kernels; nobody is to wait a second longer than he
// said.
constexpr milliseconds kGrace(950);
// A master takes a second at most to close a session; one that does not answer does it when it
// finds that its client is gone.
constexpr milliseconds kMostToClose(5'000);

}  // namespace

ClientSession::ClientSession(std::shared_ptr<MasterInterface> master, Options options)
    : master_(std::move(master)), options_(std::move(options)) {}

CallOptions ClientSession::StartLimit() const {
  if (options_.start_timeout.count() <= 0) return {};
  return {.deadline = DeadlineAfter(options_.start_timeout)};
}

CallOptions ClientSession::StepLimit(milliseconds timeout,
                                     CancellationManager* cancellation) const {
  CallOptions limit;
  limit.cancellation = cancellation;
  if (timeout.count() > 0) limit.deadline = StepDeadline(timeout + kGrace);
  return limit;
}

void ClientSession::SetDefaultTimeout(pb::RunOptions* options) const {
  if (options->timeout_in_ms() <= 0 && options_.step_timeout.count() > 0) {
    options->set_timeout_in_ms(options_.step_timeout.count());
  }
}

StatusOr<std::unique_ptr<ClientSession>> ClientSession::Create(
    std::shared_ptr<MasterInterface> master, pb::GraphDef graph, Options options,
    CancellationManager* cancellation) {
  CreateSessionArgs args;
  args.graph = std::move(graph);
  return Create(std::move(master), std::move(args), std::move(options), cancellation);
}

StatusOr<std::unique_ptr<ClientSession>> ClientSession::Create(
    std::shared_ptr<MasterInterface> master, NodeBatch nodes, Options options,
    CancellationManager* cancellation) {
  CreateSessionArgs args;
  args.nodes = std::make_unique<NodeBatch>(std::move(nodes));
  return Create(std::move(master), std::move(args), std::move(options), cancellation);
}

StatusOr<std::unique_ptr<ClientSession>> ClientSession::Create(
    std::shared_ptr<MasterInterface> master, CreateSessionArgs args, Options options,
    CancellationManager* cancellation) {
  std::unique_ptr<ClientSession> session(new ClientSession(std::move(master), std::move(options)));
  args.config = session->options_.config;
  CreateSessionResult result;
  CallOptions limit = session->StartLimit();
  limit.cancellation = cancellation;
  const Status status = Await([&](auto done) {
    session->master_->CreateSessionAsync(limit, std::move(args), &result, done);
  });
  MutexLock lock(&session->close_mu_);
  session->closed_ = !status.ok();  // nothing to close then
  if (!status.ok()) return status;
  session->handle_ = result.session_handle;
  MutexLock extend(&session->extend_mu_);
  session->graph_version_ = result.graph_version;
  return session;
}

ClientSession::~ClientSession() {
  const Status status = Close();
  if (!status.ok()) {
    MR_LOG(kInfo, "the session ", handle_, " was not closed: ", Message(status));
  }
}

Status ClientSession::Extend(pb::GraphDef graph) {
  if (graph.node_size() == 0) return OkStatus();
  ExtendSessionArgs args;
  args.graph = std::move(graph);
  return Extend(std::move(args));
}

Status ClientSession::Extend(NodeBatch nodes) {
  if (nodes.graph->num_nodes() <= 2) return OkStatus();  // source and sink
  ExtendSessionArgs args;
  args.nodes = std::make_unique<NodeBatch>(std::move(nodes));
  return Extend(std::move(args));
}

Status ClientSession::Extend(ExtendSessionArgs args) {
  MutexLock lock(&extend_mu_);
  args.session_handle = handle_;
  args.current_graph_version = graph_version_;
  int64_t version = 0;
  MR_RETURN_IF_ERROR(Await([&](auto done) {
    master_->ExtendSessionAsync(StartLimit(), std::move(args), &version, done);
  }));
  graph_version_ = version;
  return OkStatus();
}

StatusOr<std::vector<Tensor>> ClientSession::Run(RunRequest request, pb::RunMetadata* metadata,
                                                 CancellationManager* cancellation) {
  RunStepArgs args;
  args.session_handle = handle_;
  args.feeds = std::move(request.feeds);
  args.fetches = std::move(request.fetches);
  args.targets = std::move(request.targets);
  args.options = std::move(request.options);
  SetDefaultTimeout(&args.options);
  RunStepResult result;
  const milliseconds timeout(args.options.timeout_in_ms());
  MR_RETURN_IF_ERROR(Await([&](auto done) {
    master_->RunStepAsync(StepLimit(timeout, cancellation), &args, &result, done);
  }));
  if (metadata != nullptr) *metadata = std::move(result.metadata);
  return std::move(result.fetches);
}

StatusOr<std::string> ClientSession::PartialRunSetup(std::vector<std::string> feeds,
                                                     std::vector<std::string> fetches,
                                                     std::vector<std::string> targets) {
  PartialRunSetupArgs args{handle_, std::move(feeds), std::move(fetches), std::move(targets)};
  std::string partial_run_handle;
  MR_RETURN_IF_ERROR(Await([&](auto done) {
    master_->PartialRunSetupAsync(StartLimit(), std::move(args), &partial_run_handle, done);
  }));
  return partial_run_handle;
}

StatusOr<std::vector<Tensor>> ClientSession::PartialRun(
    std::string partial_run_handle, std::vector<std::pair<std::string, Tensor>> feeds,
    std::vector<std::string> fetches) {
  RunStepArgs args;
  args.session_handle = handle_;
  args.feeds = std::move(feeds);
  args.fetches = std::move(fetches);
  args.partial_run_handle = std::move(partial_run_handle);
  SetDefaultTimeout(&args.options);
  RunStepResult result;
  const milliseconds timeout(args.options.timeout_in_ms());
  MR_RETURN_IF_ERROR(Await([&](auto done) {
    master_->RunStepAsync(StepLimit(timeout, nullptr), &args, &result, done);
  }));
  return std::move(result.fetches);
}

StatusOr<int64_t> ClientSession::MakeCallable(pb::CallableOptions options) {
  MakeCallableArgs args{handle_, std::move(options)};
  SetDefaultTimeout(args.options.mutable_run_options());
  int64_t callable = 0;
  MR_RETURN_IF_ERROR(Await([&](auto done) {
    master_->MakeCallableAsync(StartLimit(), std::move(args), &callable, done);
  }));
  return callable;
}

StatusOr<std::vector<Tensor>> ClientSession::RunCallable(int64_t callable,
                                                         std::vector<Tensor> feeds,
                                                         pb::RunMetadata* metadata,
                                                         milliseconds timeout) {
  std::vector<Tensor> fetches;
  MR_RETURN_IF_ERROR(RunCallable(callable, feeds, &fetches, metadata, timeout));
  return fetches;
}

// Arguments and results of a call.
struct ClientSession::Call {
  RunCallableArgs args;
  RunStepResult result;
};

Status ClientSession::RunCallable(int64_t callable, std::span<const Tensor> feeds,
                                  std::vector<Tensor>* fetches, pb::RunMetadata* metadata,
                                  milliseconds timeout) {
  CallOptions limit;
  if (timeout.count() > 0) {
    limit.deadline = DeadlineAfter(timeout);
  } else {
    limit = StepLimit(options_.step_timeout, nullptr);
  }
  std::unique_ptr<Call> call;
  {
    MutexLock lock(&calls_mu_);
    if (!idle_calls_.empty()) {
      call = std::move(idle_calls_.back());
      idle_calls_.pop_back();
    }
  }
  if (call == nullptr) {
    call = std::make_unique<Call>();
    call->args.session_handle = handle_;
  }
  call->args.callable = callable;
  call->args.feeds.assign(feeds.begin(), feeds.end());
  const Status status =
      Await([&](auto done) { master_->RunCallableAsync(limit, &call->args, &call->result, done); });
  if (status.ok()) {
    fetches->swap(call->result.fetches);
    if (metadata != nullptr) *metadata = std::move(call->result.metadata);
  }
  call->args.feeds.clear();
  call->result.fetches.clear();
  call->result.metadata.Clear();
  MutexLock lock(&calls_mu_);
  idle_calls_.push_back(std::move(call));
  return status;
}

std::shared_ptr<PreparedRun> ClientSession::Prepare(int64_t callable) {
  return master_->Prepare(handle_, callable);
}

Status ClientSession::ReleaseCallable(int64_t callable) {
  return Await(
      [&](auto done) { master_->ReleaseCallableAsync(StartLimit(), handle_, callable, done); });
}

StatusOr<ListDevicesResult> ClientSession::ListDevices() {
  ListDevicesResult result;
  MR_RETURN_IF_ERROR(
      Await([&](auto done) { master_->ListDevicesAsync(StartLimit(), handle_, &result, done); }));
  return result;
}

Status ClientSession::Close() {
  {
    MutexLock lock(&close_mu_);
    if (std::exchange(closed_, true)) return OkStatus();
  }
  const CallOptions limit{.deadline = std::min(StartLimit().deadline, DeadlineAfter(kMostToClose))};
  return Await([&](auto done) { master_->CloseSessionAsync(limit, handle_, done); });
}

}  // namespace millrace
