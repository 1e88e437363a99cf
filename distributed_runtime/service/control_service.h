// SPDX-License-Identifier: Apache-2.0
// /millrace.ControlService: asking a server who it is, and telling it that its job is done.
#ifndef DISTRIBUTED_RUNTIME_SERVICE_CONTROL_SERVICE_H_
#define DISTRIBUTED_RUNTIME_SERVICE_CONTROL_SERVICE_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/notification.h"
#include "millrace/status.h"
#include "proto/control.pb.h"
#include "proto/link.pb.h"
#include "proto/waits.pb.h"
#include "transport/grpc/credentials.h"
#include "transport/method_server.h"

namespace millrace {

// `status` fills in the answer. `shutdown` gets the reason; empty: PermissionDenied. `offer` says
// how tasks on this host may open a link, and gets the one that asks ("": not proven). All must be
// callable, from any thread, as long as the server runs.
void AddControlMethods(MethodServer* server, std::function<void(pb::ControlStatusResponse*)> status,
                       std::function<void(const std::string& reason)> shutdown,
                       std::function<pb::OfferLinkResponse(std::string_view caller)> offer);

// `ask` is given until when all tasks may answer, and whom to call with what they said.
using AskForWaits =
    std::function<void(const CallOptions&, std::function<void(pb::WaitReport)> done)>;
void AddWhyWaitingMethod(MethodServer* server, AskForWaits ask);

// The client's side, for "host:port". These block. Unavailable or DeadlineExceeded, naming the
// address, if there is no answer; Unauthenticated or PermissionDenied if the server refuses the
// credentials (null: DefaultCredentials).
StatusOr<pb::ControlStatusResponse> GetControlStatus(
    const std::string& address, Deadline deadline,
    std::shared_ptr<const LoadedCredentials> credentials = nullptr);
// What the steps of all tasks wait for that the task knows of, culprit first; `deadline` must not
// be kNoDeadline: the last second of it is kept for the answer.
StatusOr<pb::WaitReport> GetWhyWaiting(
    const std::string& address, Deadline deadline,
    std::shared_ptr<const LoadedCredentials> credentials = nullptr);
Status RequestShutdown(const std::string& address, const std::string& reason, Deadline deadline,
                       std::shared_ptr<const LoadedCredentials> credentials = nullptr);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_SERVICE_CONTROL_SERVICE_H_
