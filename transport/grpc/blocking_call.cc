// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/blocking_call.h"

#include <utility>

#include "base/status_macros.h"
#include "transport/grpc/client_pool.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/message_call.h"

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
  channel.Call(method, CallOptions{deadline, nullptr}, ToWire(request),
               [&](Status status, WireReader in) {
                 if (status.ok()) status = ParseMessage(in, response);
                 result = std::move(status);
                 answered.Notify();
               });
  answered.Wait();  // the call has a deadline
  return result;
}

}  // namespace millrace
