#include "distributed_runtime/grpc/control_service.h"

#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "distributed_runtime/grpc/client_pool.h"
#include "distributed_runtime/grpc/methods.h"
#include "distributed_runtime/grpc/rpc_channel.h"

namespace millrace {
namespace {

Status CallAndWait(const std::string& address, const char* method,
                   const google::protobuf::MessageLite& request, Deadline deadline,
                   std::shared_ptr<const LoadedCredentials> credentials,
                   google::protobuf::MessageLite* response) {
  if (credentials == nullptr) {
    MR_ASSIGN_OR_RETURN(credentials, DefaultCredentials());
  }
  RpcChannel channel(address, address, ClientPool(), "", std::move(credentials));
  Notification answered;
  Status result;
  channel.Call(method, CallOptions{deadline, nullptr}, ToByteBuffer(request),
               RpcChannel::IfDown::kFail, [&](Status status, const grpc::ByteBuffer& bytes) {
                 if (status.ok()) status = ReceivedBytes(bytes).Parse(response);
                 result = std::move(status);
                 answered.Notify();
               });
  answered.Wait();  // the call has a deadline
  return result;
}

}  // namespace

void AddControlMethods(RpcServer* server, std::function<void(pb::ControlStatusResponse*)> status,
                       std::function<void(const std::string& reason)> shutdown,
                       std::function<pb::OfferLinkResponse(std::string_view caller)> offer) {
  const bool accepts = static_cast<bool>(shutdown);
  server->AddMethod(methods::kControlStatus,
                    [status = std::move(status), accepts](ServerCall* call) {
                      pb::ControlStatusResponse response;
                      status(&response);
                      response.set_accepts_shutdown(accepts);
                      call->Finish(response);
                    });
  server->AddMethod(methods::kControlOfferLink, [offer = std::move(offer)](ServerCall* call) {
    call->Finish(offer(call->proven_caller()));
  });
  server->AddMethod(methods::kControlShutdown, [shutdown = std::move(shutdown)](ServerCall* call) {
    pb::ControlShutdownRequest request;
    const Status parsed = call->Parse(&request);
    if (!parsed.ok()) return call->Finish(parsed);
    if (!shutdown) {
      return call->Finish(
          errors::PermissionDenied("this server runs until it is stopped: it does not accept to be "
                                   "shut down by a client"));
    }
    call->Finish(pb::ControlShutdownResponse());
    shutdown(request.reason());
  });
}

StatusOr<pb::ControlStatusResponse> GetControlStatus(
    const std::string& address, Deadline deadline,
    std::shared_ptr<const LoadedCredentials> credentials) {
  pb::ControlStatusResponse response;
  MR_RETURN_IF_ERROR(CallAndWait(address, methods::kControlStatus, pb::ControlStatusRequest(),
                                 deadline, std::move(credentials), &response));
  return response;
}

Status RequestShutdown(const std::string& address, const std::string& reason, Deadline deadline,
                       std::shared_ptr<const LoadedCredentials> credentials) {
  pb::ControlShutdownRequest request;
  request.set_reason(reason);
  pb::ControlShutdownResponse response;
  return CallAndWait(address, methods::kControlShutdown, request, deadline, std::move(credentials),
                     &response);
}

}  // namespace millrace
