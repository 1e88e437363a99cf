// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/service/eager_service.h"

#include <memory>

#include "base/status_macros.h"
#include "proto/eager.pb.h"
#include "transport/methods.h"

namespace millrace {
namespace {

// What a call reads and answers, as long as it runs.
template <typename Request, typename Response>
struct Exchange {
  Request request;
  Response response;
};

// A method that answers at once: `answer(const Request&, Response*, ServerCall*)`. A client calls
// in its own contexts alone.
template <typename Request, typename Response, typename Answer>
RpcServer::Handler AtOnce(const EagerServer* eager, Answer answer) {
  return [eager, answer](ServerCall* call) {
    Request request;
    Response response;
    Status status = call->Parse(&request);
    if (status.ok()) status = eager->CheckContext(request.context_id(), call->proven_client());
    if (status.ok()) status = answer(request, &response, call);
    if (!status.ok()) return call->Finish(status);
    call->Finish(response);
  };
}

// Whether a client may ask for that in its own context.
template <typename Request>
Status CheckRequest(const EagerServer* eager, const Request& request, std::string_view client) {
  return eager->CheckContext(request.context_id(), client);
}
// Its nodes receive what is sent in the step.
Status CheckRequest(const EagerServer* eager, const pb::RunComponentFunctionRequest& request,
                    std::string_view client) {
  MR_RETURN_IF_ERROR(eager->CheckContext(request.context_id(), client));
  return eager->CheckStep(request.operation().func_step_id(), client);
}

// A method that answers later: `begin(const Request&, const CallOptions&, Response*, done)`.
template <typename Request, typename Response, typename Begin>
RpcServer::Handler Later(const EagerServer* eager, Begin begin) {
  return [eager, begin](ServerCall* call) {
    auto exchange = std::make_shared<Exchange<Request, Response>>();
    Status status = call->Parse(&exchange->request);
    if (status.ok()) status = CheckRequest(eager, exchange->request, call->proven_client());
    if (!status.ok()) return call->Finish(status);
    begin(exchange->request, call->options(), &exchange->response, [call, exchange](Status done) {
      if (!done.ok()) return call->Finish(done);
      call->Finish(exchange->response);
    });
  };
}

}  // namespace

void AddEagerMethods(EagerServer* eager, RpcServer* server) {
  server->AddMethod(methods::kEagerCreateContext,
                    AtOnce<pb::CreateContextRequest, pb::CreateContextResponse>(
                        eager,
                        [eager](const auto& request, auto* response, ServerCall* call) {
                          return eager->CreateContext(request, response, call->proven_client(),
                                                      call->caller_host());
                        }),
                    RpcLane::kWork);
  server->AddMethod(methods::kEagerUpdateContext,
                    AtOnce<pb::UpdateContextRequest, pb::UpdateContextResponse>(
                        eager,
                        [eager](const auto& request, auto* response, ServerCall* call) {
                          return eager->UpdateContext(request, response, call->caller_host());
                        }),
                    RpcLane::kWork);
  const RpcServer::Handler enqueue = Later<pb::EnqueueRequest, pb::EnqueueResponse>(
      eager, [eager](const auto& request, const CallOptions& options, auto* response, auto done) {
        eager->Enqueue(request, options, response, std::move(done));
      });
  server->AddMethod(methods::kEagerEnqueue, enqueue, RpcLane::kWork);
  server->AddStream(methods::kEagerStreamingEnqueue, enqueue, RpcLane::kWork);
  server->AddMethod(
      methods::kEagerRunComponentFunction,
      Later<pb::RunComponentFunctionRequest, pb::RunComponentFunctionResponse>(
          eager,
          [eager](const auto& request, const CallOptions& options, auto* response, auto done) {
            eager->RunComponentFunction(request, options, response, std::move(done));
          }),
      RpcLane::kWork);
  server->AddMethod(methods::kEagerWaitQueueDone,
                    Later<pb::WaitQueueDoneRequest, pb::WaitQueueDoneResponse>(
                        eager, [eager](const auto& request, const CallOptions&, auto*, auto done) {
                          eager->WaitQueueDone(request, std::move(done));
                        }));
  server->AddMethod(methods::kEagerKeepAlive,
                    AtOnce<pb::KeepAliveRequest, pb::KeepAliveResponse>(
                        eager, [eager](const auto& request, auto* response, ServerCall*) {
                          return eager->KeepAlive(request, response);
                        }));
  server->AddMethod(methods::kEagerCloseContext,
                    AtOnce<pb::CloseContextRequest, pb::CloseContextResponse>(
                        eager, [eager](const auto& request, auto*, ServerCall*) {
                          return eager->CloseContext(request);
                        }));
}

}  // namespace millrace
