// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/stub/remote_master.h"

#include <cstdint>
#include <functional>
#include <utility>

#include "base/calls/request_text.h"
#include "base/errors.h"
#include "base/strings.h"
#include "distributed_runtime/messages.h"
#include "proto/master.pb.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/message_call.h"
#include "transport/methods.h"

namespace millrace {
namespace {

template <typename Repeated>
void AddAll(std::vector<std::string> from, Repeated* to) {
  for (std::string& text : from) *to->Add() = std::move(text);
}

// A session that its master does not know says which master, and what it was asked for.
Status FromMaster(Status status, const std::string& target, const char* method) {
  if (!errors::IsAborted(status)) return status;
  return Annotate(status, StrCat(" (", target, " said so to ", method, ")"));
}

// The graph of a call as a message, if it came as nodes.
Status ToMessage(const NodeBatch* nodes, pb::GraphDef* graph) {
  return nodes == nullptr ? OkStatus() : ExportNodes(*nodes, {.origins = true}, graph);
}

class GrpcRemoteMaster : public MasterInterface {
 public:
  GrpcRemoteMaster(const std::string& address, ThreadPool* pool,
                   std::shared_ptr<const LoadedCredentials> credentials)
      : target_(StrCat("grpc://", address)),
        channel_(address, target_, pool, "", std::move(credentials)) {}

  void CreateSessionAsync(const CallOptions& options, CreateSessionArgs args,
                          CreateSessionResult* result, Done done) override {
    if (Status status = ToMessage(args.nodes.get(), &args.graph); !status.ok()) {
      return done(std::move(status));
    }
    pb::CreateSessionRequest request;
    request.mutable_graph_def()->Swap(&args.graph);
    request.mutable_config()->Swap(&args.config);
    request.set_target(target_);
    Ask<pb::CreateSessionResponse>(
        methods::kMasterCreateSession, options, request, std::move(done),
        [result](pb::CreateSessionResponse& response) {
          result->session_handle = std::move(*response.mutable_session_handle());
          result->graph_version = response.graph_version();
        },
        CallTerms{.waits_if_down = true});
  }

  void ExtendSessionAsync(const CallOptions& options, ExtendSessionArgs args,
                          int64_t* new_graph_version, Done done) override {
    if (Status status = ToMessage(args.nodes.get(), &args.graph); !status.ok()) {
      return done(std::move(status));
    }
    pb::ExtendSessionRequest request;
    request.set_session_handle(args.session_handle);
    request.mutable_graph_def()->Swap(&args.graph);
    request.set_current_graph_version(args.current_graph_version);
    Ask<pb::ExtendSessionResponse>(methods::kMasterExtendSession, options, request, std::move(done),
                                   [new_graph_version](pb::ExtendSessionResponse& response) {
                                     *new_graph_version = response.new_graph_version();
                                   });
  }

  void RunStepAsync(const CallOptions& options, RunStepArgs* args, RunStepResult* result,
                    Done done) override {
    WireWriter request;
    const int64_t id = NewRequestId();
    const Status encoded = EncodeRunStepRequest(
        *args, RequestMeta{.request_id = id, .store_errors_in_body = true}, &request);
    if (!encoded.ok()) {
      done(encoded);
      return;
    }
    channel_.Call(methods::kMasterRunStep, options, std::move(request),
                  [this, id, args, result, done = std::move(done)](Status status, WireReader in) {
                    if (status.ok()) status = DecodeRunStepResponse(in, *args, result);
                    status = FromMaster(std::move(status), target_, methods::kMasterRunStep);
                    done(OfRequest(std::move(status), id));
                  });
  }

  void PartialRunSetupAsync(const CallOptions& options, PartialRunSetupArgs args,
                            std::string* partial_run_handle, Done done) override {
    pb::PartialRunSetupRequest request;
    request.set_session_handle(args.session_handle);
    AddAll(std::move(args.feeds), request.mutable_feed());
    AddAll(std::move(args.fetches), request.mutable_fetch());
    AddAll(std::move(args.targets), request.mutable_target());
    request.set_request_id(NewRequestId());
    Ask<pb::PartialRunSetupResponse>(methods::kMasterPartialRunSetup, options, request,
                                     Naming(request.request_id(), std::move(done)),
                                     [partial_run_handle](pb::PartialRunSetupResponse& response) {
                                       *partial_run_handle =
                                           std::move(*response.mutable_partial_run_handle());
                                     });
  }

  void MakeCallableAsync(const CallOptions& options, MakeCallableArgs args, int64_t* callable,
                         Done done) override {
    pb::MakeCallableRequest request;
    request.set_session_handle(args.session_handle);
    request.mutable_options()->Swap(&args.options);
    request.set_request_id(NewRequestId());
    Ask<pb::MakeCallableResponse>(
        methods::kMasterMakeCallable, options, request,
        Naming(request.request_id(), std::move(done)),
        [callable](pb::MakeCallableResponse& response) { *callable = response.handle(); });
  }

  void RunCallableAsync(const CallOptions& options, RunCallableArgs* args, RunStepResult* result,
                        Done done) override {
    WireWriter request;
    const int64_t id = NewRequestId();
    const Status encoded = EncodeRunCallableRequest(*args, RequestMeta{.request_id = id}, &request);
    if (!encoded.ok()) {
      done(encoded);
      return;
    }
    channel_.Call(methods::kMasterRunCallable, options, std::move(request),
                  [this, id, result, done = std::move(done)](Status status, WireReader in) {
                    if (status.ok()) status = DecodeRunCallableResponse(in, result);
                    status = FromMaster(std::move(status), target_, methods::kMasterRunCallable);
                    done(OfRequest(std::move(status), id));
                  });
  }

  void ReleaseCallableAsync(const CallOptions& options, const std::string& session_handle,
                            int64_t callable, Done done) override {
    pb::ReleaseCallableRequest request;
    request.set_session_handle(session_handle);
    request.set_handle(callable);
    Ask<pb::ReleaseCallableResponse>(methods::kMasterReleaseCallable, options, request,
                                     std::move(done), {});
  }

  void CloseSessionAsync(const CallOptions& options, const std::string& session_handle,
                         Done done) override {
    pb::CloseSessionRequest request;
    request.set_session_handle(session_handle);
    Ask<pb::CloseSessionResponse>(methods::kMasterCloseSession, options, request, std::move(done),
                                  {});
  }

  void ListDevicesAsync(const CallOptions& options, const std::string& session_handle,
                        ListDevicesResult* result, Done done) override {
    pb::ListDevicesRequest request;
    request.set_session_handle(session_handle);
    Ask<pb::ListDevicesResponse>(methods::kMasterListDevices, options, request, std::move(done),
                                 [result](pb::ListDevicesResponse& response) {
                                   result->local_devices.assign(response.local_device().begin(),
                                                                response.local_device().end());
                                   result->remote_devices.assign(response.remote_device().begin(),
                                                                 response.remote_device().end());
                                 });
  }

  void ResetAsync(const CallOptions& options, std::vector<std::string> containers,
                  std::vector<std::string> device_filters, Done done) override {
    pb::ResetRequest request;
    AddAll(std::move(containers), request.mutable_container());
    AddAll(std::move(device_filters), request.mutable_device_filters());
    Ask<pb::ResetResponse>(methods::kMasterReset, options, request, std::move(done), {});
  }

 private:
  // Errors say what the server's log calls the request.
  static Done Naming(int64_t request_id, Done done) {
    return [request_id, done = std::move(done)](Status status) {
      done(OfRequest(std::move(status), request_id));
    };
  }

  template <typename Response>
  void Ask(const char* method, const CallOptions& options,
           const google::protobuf::MessageLite& request, Done done,
           std::function<void(Response&)> use, const CallTerms& terms = CallTerms()) {
    CallMessage<Response>(
        &channel_, method, options, ToWire(request),
        [this, method, use = std::move(use), done = std::move(done)](const Status& status,
                                                                     Response& response) {
          if (status.ok() && use) use(response);
          done(FromMaster(status, target_, method));
        },
        terms);
  }

  const std::string target_;
  RpcChannel channel_;
};

}  // namespace

std::unique_ptr<MasterInterface> NewGrpcRemoteMaster(
    const std::string& address, ThreadPool* pool,
    std::shared_ptr<const LoadedCredentials> credentials) {
  return std::make_unique<GrpcRemoteMaster>(address, pool, std::move(credentials));
}

}  // namespace millrace
