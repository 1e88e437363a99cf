// SPDX-License-Identifier: Apache-2.0
#include "master/master_session.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "io/filesystem.h"
#include "session/async_join.h"
#include "session/session_clusters.h"

namespace millrace {
namespace {

// Whoever closes a session does not wait longer for tasks that do not answer; they are asked on.
constexpr std::chrono::seconds kCloseWait(1);
constexpr std::chrono::seconds kDeleteTimeout(60);

// In the folder for temporary files, under a name that nobody can guess.
std::string NewPlacementFile() {
  const char* folder = std::getenv("TMPDIR");
  return JoinPath(folder == nullptr || *folder == '\0' ? "/tmp" : folder,
                  StrCat("millrace_placement_", Hex16(RandomId()), ".txt"));
}

}  // namespace

MasterSession::MasterSession(const MasterEnv& env, std::string handle)
    : env_(env), handle_(std::move(handle)), task_(env.task), next_step_(RandomId()) {}

MasterSession::~MasterSession() {
  MutexLock lock(&mu_);
  DeadlineTimer::Global().Cancel(direct_timer_);
}

Status MasterSession::Configure(CreateSessionArgs* args) {
  config_ = std::move(args->config);
  pb::ClusterDef brought;  // the workers are told with their sessions, not with every graph
  brought.Swap(config_.mutable_cluster_def());
  config_.MergeFrom(env_.default_config);
  config_.clear_cluster_def();
  if (config_.session_inter_op_thread_pool_size() > 0 && task_->inter_op_pools.empty()) {
    return errors::InvalidArgument(
        "Distributed session does not support session thread pool options.");
  }
  if (brought.job_size() > 0) {
    if (task_->clusters == nullptr) {
      return errors::Unimplemented(
          "a session cannot bring its own cluster_def here; start servers with the cluster "
          "instead");
    }
    MR_ASSIGN_OR_RETURN(own_cluster_, task_->clusters->Lead(brought, args->target));
    task_ = own_cluster_.get();
  }
  if (config_.graph_options().place_pruned_graph()) {
    MR_LOG(kWarning, "place_pruned_graph is not supported here: the whole graph is placed");
    config_.mutable_graph_options()->set_place_pruned_graph(false);
  }
  // The one thing that TensorFlow does differently for this type: its executor of one thread knows
  // no Switch and Merge. Ours run in one thread where that is faster.
  const bool keep_control_flow =
      config_.experimental().executor_type() == "SINGLE_THREADED_EXECUTOR";
  graph_ = std::make_unique<SessionGraph>(task_->ops, keep_control_flow);
  const bool dumps = env_.graph_dumper != nullptr;
  if (dumps && args->nodes != nullptr) {
    MR_RETURN_IF_ERROR(ExportNodes(*args->nodes, {.origins = true}, &args->graph));
  }
  MR_RETURN_IF_ERROR(args->nodes != nullptr ? graph_->Import(std::move(*args->nodes))
                                            : graph_->Import(args->graph));
  if (dumps) {
    dump_ = env_.graph_dumper->NewSession();
    dump_->AddOriginal(0, args->graph);
  }
  return OkStatus();
}

void MasterSession::Create(const CallOptions& options, CreateSessionArgs args, Done done) {
  if (Status status = Configure(&args); !status.ok()) return done(std::move(status));
  StatusOr<std::vector<DeviceName>> filters =
      ParseDeviceFilters({config_.device_filters().begin(), config_.device_filters().end()});
  if (!filters.ok()) return done(filters.status());
  FindClusterDevices(
      *task_, options, *std::move(filters),
      [self = shared_from_this(), options, done](StatusOr<ClusterDevices> cluster) {
        if (!cluster.ok()) return done(cluster.status());
        self->cluster_ = *std::move(cluster);
        // The last answer may have come on a thread that others wait for.
        ThreadPool* const pool = self->task_->inter_op_pool;
        if (self->cluster_.tasks.size() > 1 && pool != nullptr) {
          return pool->Schedule([self, options, done] { self->PlaceAndOpen(options, done); });
        }
        self->PlaceAndOpen(options, done);
      });
}

void MasterSession::PlaceAndOpen(const CallOptions& options, Done done) {
  Status placed = graph_->Place(cluster_.ForPlacer(*task_, config_.allow_soft_placement()));
  if (!placed.ok()) return done(std::move(placed));
  {
    MutexLock lock(&report_mu_);
    ReportPlacement(0);
  }
  CreateAtWorkers(options, std::move(done));
}

void MasterSession::ReportPlacement(int64_t version) {
  if (dump_ != nullptr) {
    const std::string why = graph_->ExplainPlacement("");
    graph_->Read([&](const DataflowGraph& graph) {
      dump_->AddPlaced(version, graph, cluster_.incarnations, why);
    });
  }
  if (config_.log_device_placement()) LogPlacement(version);
}

void MasterSession::LogPlacement(int64_t version) {
  std::string file;
  Status written;
  if (dump_ != nullptr) {
    file = dump_->PlacementFile(version);
    written = dump_->status();
  } else if (!env_.writes_placement) {
    written = errors::FailedPrecondition(
        "this server writes no files for its clients; it can be started with --dump_dir");
  } else {
    if (placement_file_.empty()) placement_file_ = NewPlacementFile();
    file = placement_file_;
    written = PosixFileSystem()->WriteFileAtomically(file, graph_->ExplainPlacement(""));
  }
  MR_LOG(kInfo, "placement of the session's graph:\n", graph_->PlacementSummary(),
         written.ok() ? StrCat("every node, and why it is there: ", file)
                      : StrCat("the list of all nodes could not be written: ", Message(written)));
}

void MasterSession::CreateAtWorkers(const CallOptions& options, Done done) {
  plan_context_.client_task = cluster_.client_task;
  plan_context_.client_device = cluster_.client_device;
  plan_context_.client_incarnation = cluster_.Incarnation(cluster_.client_device);
  plan_context_.incarnation = [this](std::string_view device) {
    return cluster_.Incarnation(device);
  };
  plan_context_.new_name = [this](std::string_view prefix) {
    return StrCat(prefix, "_S", next_name_.fetch_add(1, std::memory_order_relaxed));
  };
  plan_context_.workers = task_->workers;
  plan_context_.bfloat16_transfers = config_.graph_options().enable_bfloat16_sendrecv();
  plan_context_.schedule_receives = config_.graph_options().enable_recv_scheduling();
  plan_context_.dump = dump_.get();

  WorkerSessionOptions session;
  session.session_handle = handle_;
  session.isolate_session_state =
      (config_.isolate_session_state() || own_cluster_ != nullptr) &&
      !config_.experimental().share_session_state_in_clusterspec_propagation();
  session.master_task = cluster_.client_task;
  session.master_incarnation = static_cast<int64_t>(plan_context_.client_incarnation);
  auto self = shared_from_this();
  auto join = AsyncJoin::Make(
      static_cast<int>(cluster_.tasks.size()), [self, done = std::move(done)](Status status) {
        if (status.ok()) return done(OkStatus());
        self->DeleteAtWorkers([done, status](const Status&) { done(status); });
      });
  for (const ClusterDevices::Task& task : cluster_.tasks) {
    task.worker->CreateSessionAsync(options, session,
                                    [join](Status status) { join->Done(std::move(status)); });
  }
}

void MasterSession::DeleteAtWorkers(Done done) {
  struct Answer {
    explicit Answer(Done d) : done(std::move(d)) {}
    std::atomic<bool> given{false};
    Done done;
    void Give() {
      if (!given.exchange(true)) std::exchange(done, nullptr)(OkStatus());
    }
  };
  const auto answer = std::make_shared<Answer>(std::move(done));
  const DeadlineTimer::Token timer =
      DeadlineTimer::Global().Schedule(DeadlineAfter(kCloseWait), [answer] { answer->Give(); });
  auto join =
      AsyncJoin::Make(static_cast<int>(cluster_.tasks.size()), [answer, timer](const Status&) {
        DeadlineTimer::Global().Cancel(timer);
        answer->Give();
      });
  const CallOptions options{.deadline = DeadlineAfter(kDeleteTimeout)};
  for (const ClusterDevices::Task& task : cluster_.tasks) {
    // The answer may be awaited when the session is gone already.
    task.worker->DeleteSessionAsync(
        options, handle_, [join, name = task.name, kept = own_cluster_](Status status) {
          if (!status.ok())
            MR_LOG(kInfo, "a session was not closed at ", name, ": ", Message(status));
          join->Done(OkStatus());
        });
  }
}

Status MasterSession::Extend(const ExtendSessionArgs& args, int64_t* new_version) {
  if (!Enter()) return ClosedError();
  Status status;
  {
    MutexLock lock(&report_mu_);
    const int64_t version = args.current_graph_version;
    status = args.nodes != nullptr ? graph_->Extend(*args.nodes, version, new_version)
                                   : graph_->Extend(args.graph, version, new_version);
    if (status.ok() && dump_ != nullptr) {
      pb::GraphDef def;
      if (args.nodes != nullptr) status = ExportNodes(*args.nodes, {.origins = true}, &def);
      dump_->AddOriginal(*new_version, args.nodes != nullptr ? def : args.graph);
    }
    if (status.ok()) ReportPlacement(*new_version);
  }
  Leave();
  return status;
}

void MasterSession::ListDevices(ListDevicesResult* result) const {
  for (const ClusterDevices::Task& task : cluster_.tasks) {
    for (const pb::DeviceAttributes& device : task.devices) result->local_devices.push_back(device);
  }
}

bool MasterSession::Enter() {
  MutexLock lock(&mu_);
  if (closed_) return false;
  ++running_;
  return true;
}

void MasterSession::Leave() {
  {
    MutexLock lock(&mu_);
    if (--running_ > 0 || !closed_) return;
  }
  FinishClose();
}

Status MasterSession::ClosedError() const {
  return errors::FailedPrecondition("Session is closed.");
}

void MasterSession::Close(Done done) {
  std::vector<RefPtr<Step>> steps;
  std::vector<RefPtr<DirectStep>> direct_steps;
  StringMap<std::shared_ptr<PartialRun>> partial_runs;
  bool idle;
  {
    MutexLock lock(&mu_);
    if (deleted_) {
      idle = false;
    } else {
      close_waiters_.push_back(std::exchange(done, nullptr));
      if (closed_) return;
      closed_ = true;
      idle = running_ == 0;
      partial_runs.swap(partial_runs_);
      callables_.clear();
      for (Step* step : steps_) steps.push_back(RefPtr<Step>::Share(step));
      for (DirectStep* step = direct_steps_; step != nullptr; step = step->next) {
        direct_steps.push_back(RefPtr<DirectStep>::Share(step));
      }
    }
  }
  if (done != nullptr) return done(OkStatus());
  closing_.StartCancel(errors::Cancelled("Session::Close()"));
  const Status reason =
      errors::Cancelled("Step was cancelled by an explicit call to `Session::Close()`.");
  for (const RefPtr<Step>& step : steps) step->Abort(reason);
  for (const RefPtr<DirectStep>& step : direct_steps) step->Abort(reason);
  steps.clear();
  direct_steps.clear();
  for (const auto& [handle, run] : partial_runs) run->Cleanup();
  if (idle) FinishClose();
}

void MasterSession::FinishClose() {
  DeleteAtWorkers([self = shared_from_this()](const Status&) {
    std::vector<Done> waiters;
    {
      MutexLock lock(&self->mu_);
      self->deleted_ = true;
      waiters.swap(self->close_waiters_);
    }
    for (const Done& done : waiters) done(OkStatus());
  });
}

}  // namespace millrace
