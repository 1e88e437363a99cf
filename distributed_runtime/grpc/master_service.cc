#include "distributed_runtime/grpc/master_service.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "distributed_runtime/grpc/grpc_util.h"
#include "distributed_runtime/grpc/methods.h"
#include "distributed_runtime/messages.h"
#include "distributed_runtime/recent_ids.h"
#include "proto/master.pb.h"

namespace millrace {
namespace {

constexpr std::size_t kRememberedRequests = 10'000;

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

}  // namespace

struct MasterService::Impl {
  MasterInterface* master = nullptr;
  RecentIds requests{kRememberedRequests};

  void CreateSession(ServerCall* call) {
    pb::CreateSessionRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return call->Finish(status);
    CreateSessionArgs args;
    args.graph.Swap(request.mutable_graph_def());
    args.config.Swap(request.mutable_config());
    auto result = std::make_shared<CreateSessionResult>();
    master->CreateSessionAsync(call->options(), std::move(args), result.get(),
                               [call, result](Status created) {
                                 if (!created.ok()) return call->Finish(created);
                                 pb::CreateSessionResponse response;
                                 response.set_session_handle(result->session_handle);
                                 response.set_graph_version(result->graph_version);
                                 call->Finish(response);
                               });
  }

  void ExtendSession(ServerCall* call) {
    pb::ExtendSessionRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return call->Finish(status);
    ExtendSessionArgs args;
    args.session_handle = request.session_handle();
    args.graph.Swap(request.mutable_graph_def());
    args.current_graph_version = request.current_graph_version();
    auto version = std::make_shared<int64_t>(0);
    master->ExtendSessionAsync(call->options(), std::move(args), version.get(),
                               [call, version](Status extended) {
                                 if (!extended.ok()) return call->Finish(extended);
                                 pb::ExtendSessionResponse response;
                                 response.set_new_graph_version(*version);
                                 call->Finish(response);
                               });
  }

  void PartialRunSetup(ServerCall* call) {
    pb::PartialRunSetupRequest request;
    Status status = call->Parse(&request);
    if (status.ok()) status = requests.Track(request.request_id(), "PartialRunSetup");
    if (!status.ok()) return call->Finish(status);
    PartialRunSetupArgs args{request.session_handle(), Strings(request.feed()),
                             Strings(request.fetch()), Strings(request.target())};
    auto handle = std::make_shared<std::string>();
    master->PartialRunSetupAsync(call->options(), std::move(args), handle.get(),
                                 [call, handle](Status set_up) {
                                   if (!set_up.ok()) return call->Finish(set_up);
                                   pb::PartialRunSetupResponse response;
                                   response.set_partial_run_handle(*handle);
                                   call->Finish(response);
                                 });
  }

  void RunStep(ServerCall* call) {
    auto run = std::make_unique<Run<RunStepArgs>>();
    Status status = DecodeRunStepRequest(call->reader(), &run->args, &run->meta);
    if (status.ok()) status = requests.Track(run->meta.request_id, "RunStep");
    if (!status.ok()) return call->Finish(status);
    auto* const raw = run.release();
    master->RunStepAsync(call->options(), &raw->args, &raw->result, [call, raw](Status ran) {
      const std::unique_ptr<Run<RunStepArgs>> owned(raw);
      WireWriter response;
      if (ran.ok()) ran = EncodeRunStepResponse(raw->args, raw->result, &response);
      if (ran.ok()) return call->Finish(std::move(response));
      if (!raw->meta.store_errors_in_body) return call->Finish(ran);
      WireWriter error;
      EncodeRunStepError(ran, &error);
      call->Finish(std::move(error));
    });
  }

  void MakeCallable(ServerCall* call) {
    pb::MakeCallableRequest request;
    Status status = call->Parse(&request);
    if (status.ok()) status = requests.Track(request.request_id(), "MakeCallable");
    if (!status.ok()) return call->Finish(status);
    MakeCallableArgs args;
    args.session_handle = request.session_handle();
    args.options.Swap(request.mutable_options());
    auto handle = std::make_shared<int64_t>(0);
    master->MakeCallableAsync(call->options(), std::move(args), handle.get(),
                              [call, handle](Status made) {
                                if (!made.ok()) return call->Finish(made);
                                pb::MakeCallableResponse response;
                                response.set_handle(*handle);
                                call->Finish(response);
                              });
  }

  void RunCallable(ServerCall* call) {
    auto run = std::make_unique<Run<RunCallableArgs>>();
    Status status = DecodeRunCallableRequest(call->reader(), &run->args, &run->meta);
    if (status.ok()) status = requests.Track(run->meta.request_id, "RunCallable");
    if (!status.ok()) return call->Finish(status);
    auto* const raw = run.release();
    master->RunCallableAsync(call->options(), &raw->args, &raw->result, [call, raw](Status ran) {
      const std::unique_ptr<Run<RunCallableArgs>> owned(raw);
      WireWriter response;
      if (ran.ok()) ran = EncodeRunCallableResponse(raw->result, &response);
      if (!ran.ok()) return call->Finish(ran);
      call->Finish(std::move(response));
    });
  }

  void ReleaseCallable(ServerCall* call) {
    pb::ReleaseCallableRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return call->Finish(status);
    master->ReleaseCallableAsync(call->options(), request.session_handle(), request.handle(),
                                 [call](Status released) { call->Finish(released); });
  }

  void CloseSession(ServerCall* call) {
    pb::CloseSessionRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return call->Finish(status);
    master->CloseSessionAsync(call->options(), request.session_handle(),
                              [call](Status closed) { call->Finish(closed); });
  }

  void ListDevices(ServerCall* call) {
    pb::ListDevicesRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return call->Finish(status);
    auto result = std::make_shared<ListDevicesResult>();
    master->ListDevicesAsync(call->options(), request.session_handle(), result.get(),
                             [call, result](Status listed) {
                               if (!listed.ok()) return call->Finish(listed);
                               pb::ListDevicesResponse response;
                               for (const auto& device : result->local_devices) {
                                 *response.add_local_device() = device;
                               }
                               for (const auto& device : result->remote_devices) {
                                 *response.add_remote_device() = device;
                               }
                               call->Finish(response);
                             });
  }

  void Reset(ServerCall* call) {
    pb::ResetRequest request;
    const Status status = call->Parse(&request);
    if (!status.ok()) return call->Finish(status);
    master->ResetAsync(call->options(), Strings(request.container()),
                       Strings(request.device_filters()),
                       [call](Status reset) { call->Finish(reset); });
  }
};

MasterService::MasterService(MasterInterface* master) : impl_(std::make_unique<Impl>()) {
  impl_->master = master;
}

MasterService::~MasterService() = default;

void MasterService::AddMethods(RpcServer* server) {
  Impl* const impl = impl_.get();
  const auto add = [&](const char* path, void (Impl::*method)(ServerCall*)) {
    server->AddMethod(path, [impl, method](ServerCall* call) { (impl->*method)(call); });
  };
  add(methods::kMasterCreateSession, &Impl::CreateSession);
  add(methods::kMasterExtendSession, &Impl::ExtendSession);
  add(methods::kMasterPartialRunSetup, &Impl::PartialRunSetup);
  add(methods::kMasterRunStep, &Impl::RunStep);
  add(methods::kMasterMakeCallable, &Impl::MakeCallable);
  add(methods::kMasterRunCallable, &Impl::RunCallable);
  add(methods::kMasterReleaseCallable, &Impl::ReleaseCallable);
  add(methods::kMasterCloseSession, &Impl::CloseSession);
  add(methods::kMasterListDevices, &Impl::ListDevices);
  add(methods::kMasterReset, &Impl::Reset);
}

}  // namespace millrace
