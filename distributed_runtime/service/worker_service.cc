// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/service/worker_service.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/calls/request_text.h"
#include "base/clock.h"
#include "base/errors.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "distributed_runtime/messages.h"
#include "distributed_runtime/recent_ids.h"
#include "distributed_runtime/service/collective_service.h"
#include "distributed_runtime/service/failed_steps.h"
#include "graph/graph_def_io.h"
#include "millrace/version.h"
#include "proto/step_state.pb.h"
#include "proto/worker.pb.h"
#include "transport/methods.h"

namespace millrace {
namespace {

constexpr std::size_t kRememberedRequests = 100'000;

// The transport cancels a call whose deadline has passed, so that the worker needs no timer.
CallOptions UntilCancelled(ServerCall* call) { return {kNoDeadline, call->options().cancellation}; }

// A step whose caller has been told that it failed must not be begun: it would be applied all the
// same.
Status CheckInTime(ServerCall* call, std::chrono::microseconds begin_within) {
  Deadline begin_by = call->begin_by();
  if (begin_within.count() > 0) begin_by = std::min(begin_by, call->arrival() + begin_within);
  Status status;
  if (call->options().cancellation->IsCancelled()) {
    status = MarkDerived(errors::Cancelled("RunGraph was cancelled before it was begun"));
  } else if (begin_by != kNoDeadline && SteadyClock::now() >= begin_by) {
    status = errors::DeadlineExceeded("RunGraph was not begun by its deadline");
  }
  return status;
}

}  // namespace

struct WorkerService::Impl {
  const WorkerEnv* env = nullptr;
  WorkerInterface* worker = nullptr;
  PeerTable* peers = nullptr;
  MayReceive may_receive;
  RecentIds requests{kRememberedRequests};
  FailedSteps failed;

  void GetStatus(ServerCall* call) {
    auto devices = std::make_shared<std::vector<pb::DeviceAttributes>>();
    worker->GetStatusAsync(call->options(), devices.get(), [this, call, devices](Status status) {
      if (!status.ok()) return call->Finish(status);
      pb::GetStatusResponse response;
      if (peers != nullptr) response.set_cluster_id(peers->own().cluster_id);
      response.set_version(MILLRACE_VERSION);
      for (pb::DeviceAttributes& device : *devices) {
        *response.add_device_attributes() = std::move(device);
      }
      call->Finish(response);
    });
  }

  void CreateWorkerSession(ServerCall* call) {
    pb::CreateWorkerSessionRequest request;
    Status status = call->Parse(&request);
    if (status.ok() && request.session_handle().empty()) {
      status = errors::InvalidArgument("Session must be non-empty.");
    }
    const std::string of = StrCat("session ", request.session_handle());
    if (!status.ok()) return Refuse(call, "CreateWorkerSession", of, status);
    WorkerSessionOptions options;
    options.session_handle = request.session_handle();
    options.isolate_session_state = request.isolate_session_state();
    options.master_task = request.master_task();
    options.master_incarnation = request.master_incarnation();
    if (request.server_def().cluster().job_size() > 0) {
      auto server_def = std::make_shared<pb::ServerDef>();
      server_def->Swap(request.mutable_server_def());
      server_def->clear_default_session_config();
      options.server_def = std::move(server_def);
    }
    if (!call->proven_caller().empty() && !options.master_task.empty() &&
        !IsOwnName(call->proven_caller(), options)) {
      return Refuse(call, "CreateWorkerSession", of,
                    errors::PermissionDenied("the certificate of ", call->proven_caller(),
                                             " is no right to open a session in the name of ",
                                             options.master_task));
    }
    // The cluster of a session has names of its own, which say nothing of this task's peers.
    if (peers == nullptr || options.master_task.empty() || options.server_def != nullptr) {
      return OpenSession(call, options);
    }
    // TensorFlow's masters say who they are here only.
    peers->Admit(options.master_task, static_cast<uint64_t>(options.master_incarnation),
                 [this, call, options](const StatusOr<PeerTable::Standing>& standing) mutable {
                   if (!standing.ok()) {
                     return Refuse(call, "CreateWorkerSession",
                                   StrCat("session ", options.session_handle), standing.status());
                   }
                   options.master_is_confirmed = *standing == PeerTable::Standing::kConfirmed;
                   OpenSession(call, options);
                 });
  }

  // Whether the master of the session is `caller`: in a cluster that the session brings, by the
  // address.
  bool IsOwnName(std::string_view caller, const WorkerSessionOptions& options) const {
    if (options.server_def == nullptr) return options.master_task == caller;
    const std::string address = env->workers->Address(caller);
    for (const pb::JobDef& job : options.server_def->cluster().job()) {
      for (const auto& [index, at] : job.tasks()) {
        if (!address.empty() && at == address &&
            MakeTaskName(job.name(), index) == options.master_task) {
          return true;
        }
      }
    }
    return false;
  }

  void OpenSession(ServerCall* call, const WorkerSessionOptions& options) {
    worker->CreateSessionAsync(
        call->options(), options,
        [this, call, of = StrCat("session ", options.session_handle)](Status created) {
          if (created.ok()) return call->Finish(created);
          Refuse(call, "CreateWorkerSession", of, created);
        });
  }

  void DeleteWorkerSession(ServerCall* call) {
    pb::DeleteWorkerSessionRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return call->Finish(status);
    worker->DeleteSessionAsync(call->options(), request.session_handle(),
                               [call](Status deleted) { call->Finish(deleted); });
  }

  void RegisterGraph(ServerCall* call) {
    pb::RegisterGraphRequest request;
    RegisterGraphArgs args;
    args.graph = std::make_unique<DataflowGraph>(env->ops);
    Status status = call->Parse(&request);
    if (status.ok()) {
      status = ImportGraphDef(ImportOptions{.internal_names = true, .devices_are_assigned = true},
                              request.graph_def(), args.graph.get());
    }
    const std::string of = StrCat("session ", request.session_handle());
    if (!status.ok()) return Refuse(call, "RegisterGraph", of, status);
    if (request.create_worker_session_called()) args.session_handle = request.session_handle();
    args.graph_options.Swap(request.mutable_graph_options());
    args.config.Swap(request.mutable_config_proto());
    args.collective_graph_key = request.collective_graph_key();
    args.keep_graph = !request.forget_graph();
    auto handle = std::make_shared<std::string>();
    worker->RegisterGraphAsync(call->options(), std::move(args), handle.get(),
                               [this, call, handle, of](Status registered) {
                                 if (!registered.ok()) {
                                   return Refuse(call, "RegisterGraph", of, registered);
                                 }
                                 pb::RegisterGraphResponse response;
                                 response.set_graph_handle(*handle);
                                 call->Finish(response);
                               });
  }

  void DeregisterGraph(ServerCall* call) {
    pb::DeregisterGraphRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return call->Finish(status);
    worker->DeregisterGraphAsync(
        call->options(), request.create_worker_session_called() ? request.session_handle() : "",
        request.graph_handle(), [call](Status deregistered) { call->Finish(deregistered); });
  }

  // Ends a call that has no name of its own, with a line that has one. Its error goes to a master,
  // which names it after its client's request; both know the session.
  void Refuse(ServerCall* call, const char* method, const std::string& of, const Status& why) {
    failed.Log(method, of, NewRequestId(), why, call->caller_text());
    call->Finish(why);
  }
  // The error of a part of a step, which is logged.
  Status Failed(const RunGraphArgs& args, bool is_named, const Status& why) {
    failed.Log("RunGraph", StrCat("session ", args.session_handle), args.request_id, why);
    return is_named ? why : OfRequest(why, args.request_id);
  }

  void RunGraph(ServerCall* call) {
    struct Run {
      RunGraphArgs args;
      RunGraphResult result;
      RequestMeta meta;
    };
    auto run = std::make_unique<Run>();
    Status status = DecodeRunGraphRequest(call->reader(), &run->args, &run->meta);
    if (!status.ok()) return Refuse(call, "RunGraph", "a session", status);
    // A master of ours says for which request of its client the step is, and names it in the
    // client's error; another one has a name for its own call.
    const bool is_named = run->args.request_id != 0;
    if (!is_named) run->args.request_id = run->meta.request_id;
    status = requests.Track(run->meta.request_id, "RunGraph");
    if (status.ok()) status = CheckInTime(call, run->meta.begin_within);
    if (!status.ok()) return call->Finish(Failed(run->args, is_named, status));
    Run* const raw = run.release();
    const auto answer = [this, call, raw, is_named](Status ran) {
      const std::unique_ptr<Run> owned(raw);
      WireWriter response;
      if (ran.ok()) ran = EncodeRunGraphResponse(raw->args, raw->result, &response);
      if (ran.ok()) return call->Finish(std::move(response));
      ran = Failed(raw->args, is_named, ran);
      if (!raw->meta.store_errors_in_body) return call->Finish(ran);
      WireWriter error;
      EncodeRunGraphError(ran, &error);
      call->Finish(std::move(error));
    };
    worker->RunGraphAsync(UntilCancelled(call), &raw->args, &raw->result, answer);
  }

  void DescribeStep(ServerCall* call) {
    pb::DescribeStepRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return call->Finish(status);
    std::optional<int64_t> step_id;
    if (!request.all_steps()) step_id = request.step_id();
    auto response = std::make_shared<pb::DescribeStepResponse>();
    worker->ListWaitsAsync(call->options(), step_id, response->mutable_waits(),
                           [call, response](Status listed) {
                             if (!listed.ok()) return call->Finish(listed);
                             call->Finish(*response);
                           });
  }

  void CleanupGraph(ServerCall* call) {
    pb::CleanupGraphRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return call->Finish(status);
    worker->CleanupGraphAsync(call->options(), request.step_id(),
                              [call](Status cleaned) { call->Finish(cleaned); });
  }

  void CleanupAll(ServerCall* call) {
    pb::CleanupAllRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return call->Finish(status);
    worker->CleanupAllAsync(call->options(),
                            {request.container().begin(), request.container().end()},
                            [call](Status cleaned) { call->Finish(cleaned); });
  }

  void RecvTensor(ServerCall* call) {
    pb::RecvTensorRequest request;
    Status status = call->Parse(&request);
    if (const std::string_view client = call->proven_client(); status.ok() && !client.empty()) {
      status = may_receive != nullptr
                   ? may_receive(request.step_id(), client)
                   : errors::PermissionDenied("this task has no results of clients");
    }
    if (status.ok()) status = requests.Track(request.request_id(), "RecvTensor");
    if (!status.ok()) {
      return Refuse(call, "RecvTensor", StrCat("step ", request.step_id()), status);
    }
    worker->RecvTensorAsync(UntilCancelled(call), request.step_id(), request.rendezvous_key(),
                            [call](const Status& received, const Tensor& tensor, bool is_dead) {
                              if (!received.ok()) return call->Finish(received);
                              WireWriter response;
                              const Status encoded = EncodeRecvTensorResponse(
                                  tensor, is_dead, WallMicros(), false, &response);
                              if (!encoded.ok()) return call->Finish(encoded);
                              call->Finish(std::move(response));
                            });
  }
};

WorkerService::WorkerService(const WorkerEnv* env, WorkerInterface* worker, PeerTable* peers)
    : impl_(std::make_unique<Impl>()) {
  impl_->env = env;
  impl_->worker = worker;
  impl_->peers = peers;
}

WorkerService::~WorkerService() = default;

void WorkerService::set_may_receive(MayReceive may_receive) {
  impl_->may_receive = std::move(may_receive);
}

void WorkerService::AddMethods(MethodServer* server) {
  Impl* const impl = impl_.get();
  const auto add = [&](const char* path, void (Impl::*method)(ServerCall*),
                       RpcLane lane = RpcLane::kControl) {
    server->AddMethod(path, [impl, method](ServerCall* call) { (impl->*method)(call); }, lane);
  };
  add(methods::kWorkerGetStatus, &Impl::GetStatus);
  add(methods::kWorkerCreateWorkerSession, &Impl::CreateWorkerSession);
  add(methods::kWorkerDeleteWorkerSession, &Impl::DeleteWorkerSession);
  add(methods::kWorkerRegisterGraph, &Impl::RegisterGraph, RpcLane::kWork);
  add(methods::kWorkerDeregisterGraph, &Impl::DeregisterGraph);
  add(methods::kWorkerRunGraph, &Impl::RunGraph, RpcLane::kWork);
  add(methods::kWorkerCleanupGraph, &Impl::CleanupGraph);
  add(methods::kWorkerCleanupAll, &Impl::CleanupAll);
  add(methods::kWorkerRecvTensor, &Impl::RecvTensor);
  add(methods::kControlDescribeStep, &Impl::DescribeStep);
  // Answers are not kept for receivers that ask again, so there is nothing to let go of; and
  // nothing is logged.
  for (const char* path : {methods::kWorkerMarkRecvFinished, methods::kWorkerLogging}) {
    server->AddMethod(path, [](ServerCall* call) { call->Finish(OkStatus()); });
  }
  server->AddMethod(methods::kWorkerTracing, [](ServerCall* call) {
    call->Finish(errors::Unimplemented(
        "this worker has no Tracing: run a step with RunOptions.trace_level, or "
        "take a trace of the next steps with `millrace trace`"));
  });
  AddCollectiveMethods(impl->worker->collectives(), server);
}

}  // namespace millrace
