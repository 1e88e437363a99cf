// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/service/control_service.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "proto/step_state.pb.h"
#include "transport/grpc/blocking_call.h"
#include "transport/methods.h"

namespace millrace {
namespace {

// How long tasks may take to say what they wait for, if the caller does not say, and at most.
constexpr double kWhyWaitingSeconds = 2;
constexpr double kMostWhyWaitingSeconds = 60;

}  // namespace

void AddControlMethods(MethodServer* server, std::function<void(pb::ControlStatusResponse*)> status,
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

void AddWhyWaitingMethod(MethodServer* server, AskForWaits ask) {
  server->AddMethod(methods::kControlWhyWaiting, [ask = std::move(ask)](ServerCall* call) {
    pb::WhyWaitingRequest request;
    const Status parsed = call->Parse(&request);
    if (!parsed.ok()) return call->Finish(parsed);
    const double wanted =
        request.timeout_seconds() > 0 ? request.timeout_seconds() : kWhyWaitingSeconds;
    const std::chrono::duration<double> limit(std::min(wanted, kMostWhyWaitingSeconds));
    const CallOptions options{
        DeadlineAfter(std::chrono::duration_cast<std::chrono::nanoseconds>(limit)),
        call->options().cancellation};
    ask(options, [call](pb::WaitReport report) {
      pb::WhyWaitingResponse response;
      response.mutable_report()->Swap(&report);
      call->Finish(response);
    });
  });
}

StatusOr<pb::WaitReport> GetWhyWaiting(const std::string& address, Deadline deadline,
                                       std::shared_ptr<const LoadedCredentials> credentials) {
  const std::chrono::duration<double> left = deadline - SteadyClock::now();
  pb::WhyWaitingRequest request;
  request.set_timeout_seconds(std::max(left.count() - 1, left.count() / 2));
  pb::WhyWaitingResponse response;
  MR_RETURN_IF_ERROR(CallAndWait(address, methods::kControlWhyWaiting, request, deadline,
                                 std::move(credentials), &response));
  return std::move(*response.mutable_report());
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
