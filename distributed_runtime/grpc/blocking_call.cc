#include "distributed_runtime/grpc/blocking_call.h"

#include <utility>

#include "base/status_macros.h"
#include "distributed_runtime/grpc/client_pool.h"
#include "distributed_runtime/grpc/grpc_util.h"
#include "distributed_runtime/grpc/rpc_channel.h"

namespace millrace {

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

}  // namespace millrace
