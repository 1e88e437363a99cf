#include "distributed_runtime/service/eager_service.h"

#include <memory>

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

// A method that answers at once: `answer(const Request&, Response*)`.
template <typename Request, typename Response, typename Answer>
RpcServer::Handler AtOnce(Answer answer) {
  return [answer](ServerCall* call) {
    Request request;
    Response response;
    Status status = call->Parse(&request);
    if (status.ok()) status = answer(request, &response);
    if (!status.ok()) return call->Finish(status);
    call->Finish(response);
  };
}

// A method that answers later: `begin(const Request&, const CallOptions&, Response*, done)`.
template <typename Request, typename Response, typename Begin>
RpcServer::Handler Later(Begin begin) {
  return [begin](ServerCall* call) {
    auto exchange = std::make_shared<Exchange<Request, Response>>();
    const Status status = call->Parse(&exchange->request);
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
                        [eager](const auto& request, auto* response) {
                          return eager->CreateContext(request, response);
                        }),
                    RpcLane::kWork);
  server->AddMethod(methods::kEagerUpdateContext,
                    AtOnce<pb::UpdateContextRequest, pb::UpdateContextResponse>(
                        [eager](const auto& request, auto* response) {
                          return eager->UpdateContext(request, response);
                        }),
                    RpcLane::kWork);
  const RpcServer::Handler enqueue = Later<pb::EnqueueRequest, pb::EnqueueResponse>(
      [eager](const auto& request, const CallOptions& options, auto* response, auto done) {
        eager->Enqueue(request, options, response, std::move(done));
      });
  server->AddMethod(methods::kEagerEnqueue, enqueue, RpcLane::kWork);
  server->AddStream(methods::kEagerStreamingEnqueue, enqueue, RpcLane::kWork);
  server->AddMethod(
      methods::kEagerRunComponentFunction,
      Later<pb::RunComponentFunctionRequest, pb::RunComponentFunctionResponse>(
          [eager](const auto& request, const CallOptions& options, auto* response, auto done) {
            eager->RunComponentFunction(request, options, response, std::move(done));
          }),
      RpcLane::kWork);
  server->AddMethod(methods::kEagerWaitQueueDone,
                    Later<pb::WaitQueueDoneRequest, pb::WaitQueueDoneResponse>(
                        [eager](const auto& request, const CallOptions&, auto*, auto done) {
                          eager->WaitQueueDone(request, std::move(done));
                        }));
  server->AddMethod(methods::kEagerKeepAlive, AtOnce<pb::KeepAliveRequest, pb::KeepAliveResponse>(
                                                  [eager](const auto& request, auto* response) {
                                                    return eager->KeepAlive(request, response);
                                                  }));
  server->AddMethod(
      methods::kEagerCloseContext,
      AtOnce<pb::CloseContextRequest, pb::CloseContextResponse>(
          [eager](const auto& request, auto*) { return eager->CloseContext(request); }));
}

}  // namespace millrace
