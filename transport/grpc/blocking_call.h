// SPDX-License-Identifier: Apache-2.0
// A call that is waited for: of tools, which have nothing else to do.
#ifndef TRANSPORT_GRPC_BLOCKING_CALL_H_
#define TRANSPORT_GRPC_BLOCKING_CALL_H_

#include <memory>
#include <string>

#include "base/notification.h"
#include "google/protobuf/message_lite.h"
#include "millrace/status.h"
#include "transport/grpc/credentials.h"

namespace millrace {

// Calls "host:port". Unavailable or DeadlineExceeded, naming the address, if there is no answer;
// Unauthenticated or PermissionDenied if the server refuses the credentials (null:
// DefaultCredentials). There must be a deadline.
Status CallAndWait(const std::string& address, const char* method,
                   const google::protobuf::MessageLite& request, Deadline deadline,
                   std::shared_ptr<const LoadedCredentials> credentials,
                   google::protobuf::MessageLite* response);

}  // namespace millrace

#endif  // TRANSPORT_GRPC_BLOCKING_CALL_H_
