// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/service/master_service.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/calls/request_text.h"
#include "base/deadline_timer.h"
#include "base/engine_thread.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/use_count.h"
#include "distributed_runtime/messages.h"
#include "distributed_runtime/recent_ids.h"
#include "distributed_runtime/service/failed_steps.h"
#include "kernels/common/variant_codec.h"
#include "millrace/ref_ptr.h"
#include "proto/master.pb.h"
#include "transport/methods.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kRememberedRequests = 10'000;
constexpr int64_t kLongestMillis = int64_t{366} * 24 * 3600 * 1000;  // added to a clock

template <typename Repeated>
std::vector<std::string> Strings(const Repeated& from) {
  return {from.begin(), from.end()};
}

// One run: its arguments and result, alive until the master is done.
template <typename Args>
struct Run {
  Args args;
  RunStepResult result;
  RequestMeta meta;
};

// What was fetched, as clients can read it.
Status EncodeObjects(std::vector<Tensor>* fetches) {
  for (Tensor& value : *fetches) {
    if (value.dtype() != kVariant) continue;
    MR_ASSIGN_OR_RETURN(value, EncodedObjects(value));
  }
  return OkStatus();
}

}  // namespace

struct MasterService::Impl {
  MasterInterface* master = nullptr;
  ThreadPool* pool = nullptr;
  UseCount handlers;  // those on the pool that have not returned
  RecentIds requests{kRememberedRequests};
  FailedSteps failed;

  void CreateSession(ServerCall* call) {
    pb::CreateSessionRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return Undecodable(call, "CreateSession", status);
    CreateSessionArgs args;
    args.graph.Swap(request.mutable_graph_def());
    args.config.Swap(request.mutable_config());
    args.target.swap(*request.mutable_target());
    auto result = std::make_shared<CreateSessionResult>();
    const int64_t id = NewRequestId();  // this request has no field for one
    const LogRequest named(id);
    master->CreateSessionAsync(
        call->options(), std::move(args), result.get(), [this, call, result, id](Status created) {
          if (!created.ok()) {
            return call->Finish(
                FailedCall("CreateSession", "a client", id, created, call->caller_text()));
          }
          pb::CreateSessionResponse response;
          response.set_session_handle(result->session_handle);
          response.set_graph_version(result->graph_version);
          call->Finish(response);
        });
  }

  void ExtendSession(ServerCall* call) {
    pb::ExtendSessionRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return Undecodable(call, "ExtendSession", status);
    ExtendSessionArgs args;
    args.session_handle = request.session_handle();
    args.graph.Swap(request.mutable_graph_def());
    args.current_graph_version = request.current_graph_version();
    auto version = std::make_shared<int64_t>(0);
    const int64_t id = NewRequestId();
    const LogRequest named(id);
    const auto answer = [this, call, version, id, session = args.session_handle](Status extended) {
      if (!extended.ok()) return call->Finish(Failed("ExtendSession", session, id, extended));
      pb::ExtendSessionResponse response;
      response.set_new_graph_version(*version);
      call->Finish(response);
    };
    master->ExtendSessionAsync(call->options(), std::move(args), version.get(), answer);
  }

  // A client that gave its request no id gets one, for what it does not tell of twice: its error,
  // the log and the pages.
  static int64_t IdOf(int64_t request_id) { return request_id == 0 ? NewRequestId() : request_id; }

  // The error of a call, which is logged under the name that it carries.
  Status FailedCall(const char* method, const std::string& of, int64_t id, const Status& why,
                    const std::string& by = {}) {
    failed.Log(method, of, id, why, by);
    return OfRequest(why, id);
  }
  // A request that cannot be read: it has no name of its own, nor that of a session.
  void Undecodable(ServerCall* call, const char* method, const Status& why) {
    call->Finish(FailedCall(method, "a client", NewRequestId(), why, call->caller_text()));
  }
  Status Failed(const char* method, const std::string& session, int64_t id, const Status& why) {
    return FailedCall(method, StrCat("session ", session), id, why);
  }
  // A call that answers nothing, and whose request has no field for a name.
  MasterInterface::Done Answer(ServerCall* call, const char* method, const std::string& session,
                               int64_t id) {
    return [this, call, method, session, id](Status done) {
      call->Finish(done.ok() ? done : Failed(method, session, id, done));
    };
  }

  void PartialRunSetup(ServerCall* call) {
    pb::PartialRunSetupRequest request;
    Status status = call->Parse(&request);
    if (!status.ok()) return Undecodable(call, "PartialRunSetup", status);
    const int64_t id = IdOf(request.request_id());
    const LogRequest named(id);
    const std::string& session = request.session_handle();
    status = requests.Track(request.request_id(), "PartialRunSetup");
    if (!status.ok()) return call->Finish(Failed("PartialRunSetup", session, id, status));
    PartialRunSetupArgs args{request.session_handle(), Strings(request.feed()),
                             Strings(request.fetch()), Strings(request.target())};
    auto handle = std::make_shared<std::string>();
    master->PartialRunSetupAsync(
        call->options(), std::move(args), handle.get(),
        [this, call, handle, id, session](const Status& set_up) {
          if (!set_up.ok()) {
            return call->Finish(Failed("PartialRunSetup", session, id, set_up));
          }
          pb::PartialRunSetupResponse response;
          response.set_partial_run_handle(*handle);
          call->Finish(response);
        });
  }

  // A step that waits for a thread, and may have to be given up before it gets one.
  struct WaitingStep : RefCounted {
    Impl* service = nullptr;
    ServerCall* call = nullptr;
    std::unique_ptr<Run<RunStepArgs>> run;
    Deadline arrival;
    std::atomic<bool> claimed{false};
    DeadlineTimer::Token timer = DeadlineTimer::kNone;

    bool Claim() { return !claimed.exchange(true, std::memory_order_acq_rel); }
  };

  void RunStep(ServerCall* call) {
    auto run = std::make_unique<Run<RunStepArgs>>();
    Status status = DecodeRunStepRequest(call->reader(), &run->args, &run->meta);
    if (!status.ok()) return Undecodable(call, "RunStep", status);
    run->args.request_id = IdOf(run->meta.request_id);
    status = requests.Track(run->meta.request_id, "RunStep");
    if (!status.ok()) {
      return call->Finish(
          Failed("RunStep", run->args.session_handle, run->args.request_id, status));
    }
    auto step = MakeRef<WaitingStep>();
    step->service = this;
    step->call = call;
    step->arrival = call->arrival();
    const int64_t timeout = run->args.options.timeout_in_ms();
    step->run = std::move(run);
    if (timeout > 0) {
      step->timer = DeadlineTimer::Global().Schedule(
          step->arrival + milliseconds(std::min(timeout, kLongestMillis)), [step, timeout] {
            if (!step->Claim()) return;
            step->service->AnswerStep(
                step->call, std::move(step->run),
                errors::DeadlineExceeded("the step did not end within ", timeout,
                                         " ms; it was waiting for a thread of the server, "
                                         "and was not begun"));
          });
    }
    handlers.Enter();
    pool->Schedule(ThreadPool::Task{[](void* arg) {
                                      const RefPtr<WaitingStep> begun(
                                          static_cast<WaitingStep*>(arg));
                                      Impl* const service = begun->service;
                                      if (begun->Claim()) service->BeginStep(begun.get());
                                      service->handlers.Leave();
                                    },
                                    step.release()});
  }

  // By who has claimed it.
  void BeginStep(WaitingStep* step) {
    DeadlineTimer::Global().Cancel(step->timer);
    ServerCall* const call = step->call;
    if (call->options().cancellation->IsCancelled()) {
      return AnswerStep(call, std::move(step->run),
                        errors::Cancelled("the run was cancelled before it was begun"));
    }
    pb::RunOptions& options = step->run->args.options;
    if (const int64_t timeout = options.timeout_in_ms(); timeout > 0) {
      const int64_t waited =
          std::chrono::duration_cast<milliseconds>(SteadyClock::now() - step->arrival).count();
      // Not for what every call waits.
      if (waited > timeout / 8) options.set_timeout_in_ms(std::max<int64_t>(timeout - waited, 1));
    }
    auto* const raw = step->run.release();
    master->RunStepAsync(call->options(), &raw->args, &raw->result, [this, call, raw](Status ran) {
      AnswerStep(call, std::unique_ptr<Run<RunStepArgs>>(raw), std::move(ran));
    });
  }

  void AnswerStep(ServerCall* call, std::unique_ptr<Run<RunStepArgs>> run, Status ran) {
    WireWriter response;
    if (ran.ok()) ran = EncodeObjects(&run->result.fetches);
    if (ran.ok()) ran = EncodeRunStepResponse(run->args, run->result, &response);
    if (ran.ok()) return call->Finish(std::move(response));
    ran = Failed("RunStep", run->args.session_handle, run->args.request_id, ran);
    if (!run->meta.store_errors_in_body) return call->Finish(ran);
    WireWriter error;
    EncodeRunStepError(ran, &error);
    call->Finish(std::move(error));
  }

  void MakeCallable(ServerCall* call) {
    pb::MakeCallableRequest request;
    Status status = call->Parse(&request);
    if (!status.ok()) return Undecodable(call, "MakeCallable", status);
    const int64_t id = IdOf(request.request_id());
    const LogRequest named(id);
    const std::string& session = request.session_handle();
    status = requests.Track(request.request_id(), "MakeCallable");
    if (!status.ok()) return call->Finish(Failed("MakeCallable", session, id, status));
    MakeCallableArgs args;
    args.session_handle = request.session_handle();
    args.options.Swap(request.mutable_options());
    auto handle = std::make_shared<int64_t>(0);
    master->MakeCallableAsync(call->options(), std::move(args), handle.get(),
                              [this, call, handle, id, session](const Status& made) {
                                if (!made.ok()) {
                                  return call->Finish(Failed("MakeCallable", session, id, made));
                                }
                                pb::MakeCallableResponse response;
                                response.set_handle(*handle);
                                call->Finish(response);
                              });
  }

  void RunCallable(ServerCall* call) {
    auto run = std::make_unique<Run<RunCallableArgs>>();
    Status status = DecodeRunCallableRequest(call->reader(), &run->args, &run->meta);
    if (!status.ok()) return Undecodable(call, "RunCallable", status);
    run->args.request_id = IdOf(run->meta.request_id);
    status = requests.Track(run->meta.request_id, "RunCallable");
    if (!status.ok()) {
      return call->Finish(
          Failed("RunCallable", run->args.session_handle, run->args.request_id, status));
    }
    auto* const raw = run.release();
    const auto answer = [this, call, raw](Status ran) {
      const std::unique_ptr<Run<RunCallableArgs>> owned(raw);
      WireWriter response;
      if (ran.ok()) ran = EncodeObjects(&raw->result.fetches);
      if (ran.ok()) ran = EncodeRunCallableResponse(raw->result, &response);
      if (ran.ok()) return call->Finish(std::move(response));
      call->Finish(Failed("RunCallable", raw->args.session_handle, raw->args.request_id, ran));
    };
    master->RunCallableAsync(call->options(), &raw->args, &raw->result, answer);
  }

  void ReleaseCallable(ServerCall* call) {
    pb::ReleaseCallableRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return Undecodable(call, "ReleaseCallable", status);
    const int64_t id = NewRequestId();
    master->ReleaseCallableAsync(call->options(), request.session_handle(), request.handle(),
                                 Answer(call, "ReleaseCallable", request.session_handle(), id));
  }

  void CloseSession(ServerCall* call) {
    pb::CloseSessionRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return Undecodable(call, "CloseSession", status);
    const int64_t id = NewRequestId();
    master->CloseSessionAsync(call->options(), request.session_handle(),
                              Answer(call, "CloseSession", request.session_handle(), id));
  }

  void ListDevices(ServerCall* call) {
    pb::ListDevicesRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return Undecodable(call, "ListDevices", status);
    auto result = std::make_shared<ListDevicesResult>();
    const int64_t id = NewRequestId();
    const auto answer = [this, call, result, id,
                         session = request.session_handle()](Status listed) {
      if (!listed.ok()) return call->Finish(Failed("ListDevices", session, id, listed));
      pb::ListDevicesResponse response;
      for (const auto& device : result->local_devices) *response.add_local_device() = device;
      for (const auto& device : result->remote_devices) *response.add_remote_device() = device;
      call->Finish(response);
    };
    master->ListDevicesAsync(call->options(), request.session_handle(), result.get(), answer);
  }

  void Reset(ServerCall* call) {
    pb::ResetRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return Undecodable(call, "Reset", status);
    const int64_t id = NewRequestId();
    master->ResetAsync(
        call->options(), Strings(request.container()), Strings(request.device_filters()),
        [this, call, id](Status reset) {
          call->Finish(reset.ok() ? reset : FailedCall("Reset", "containers", id, reset));
        });
  }
};

MasterService::MasterService(MasterInterface* master, ThreadPool* pool)
    : impl_(std::make_unique<Impl>()) {
  impl_->master = master;
  impl_->pool = pool;
}

void MasterService::WaitForNone() { impl_->handlers.WaitForNone(); }

MasterService::~MasterService() = default;

void MasterService::AddMethods(MethodServer* server) {
  Impl* const impl = impl_.get();
  const auto add = [&](const char* path, void (Impl::*method)(ServerCall*),
                       RpcLane lane = RpcLane::kControl) {
    server->AddMethod(path, [impl, method](ServerCall* call) { (impl->*method)(call); }, lane);
  };
  // What passes over graphs or begins steps.
  add(methods::kMasterCreateSession, &Impl::CreateSession, RpcLane::kWork);
  add(methods::kMasterExtendSession, &Impl::ExtendSession, RpcLane::kWork);
  add(methods::kMasterPartialRunSetup, &Impl::PartialRunSetup, RpcLane::kWork);
  add(methods::kMasterRunStep, &Impl::RunStep);  // only its decoding
  add(methods::kMasterMakeCallable, &Impl::MakeCallable, RpcLane::kWork);
  add(methods::kMasterRunCallable, &Impl::RunCallable, RpcLane::kWork);
  add(methods::kMasterReleaseCallable, &Impl::ReleaseCallable);
  add(methods::kMasterCloseSession, &Impl::CloseSession);
  add(methods::kMasterListDevices, &Impl::ListDevices);
  add(methods::kMasterReset, &Impl::Reset);
}

}  // namespace millrace
