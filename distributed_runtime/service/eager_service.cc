// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/service/eager_service.h"

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/calls/request_text.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "distributed_runtime/service/failed_steps.h"
#include "eager/request_id.h"
#include "proto/eager.pb.h"
#include "transport/methods.h"

namespace millrace {
namespace {

// What failed: how errors, logs and pages call it, and for people.
struct Failure {
  int64_t request_id = 0;
  std::string of;
  // Of a client that gives back what an op was to make: it does so after the op has failed, too.
  bool gives_back = false;
  // Of ops that will make nothing because of this.
  std::vector<int64_t> lost{};
};

std::string ContextText(uint64_t id) { return StrCat("eager context ", Hex16(id)); }

// The item of a queue that was answered last, as it was the last to be begun.
Failure Describe(const pb::EnqueueRequest& request, const pb::EnqueueResponse& response) {
  const uint64_t context = request.context_id();
  const int index = response.queue_response_size() - 1;
  if (index < 0 || index >= request.queue_size()) return {NewRequestId(), ContextText(context)};
  const pb::QueueItem& item = request.queue(index);
  const auto numbered = [context](int64_t number, const char* what, bool gives_back = false) {
    return Failure{EagerRequestId(context, number),
                   StrCat(ContextText(context), ", ", what, " op ", number), gives_back};
  };
  switch (item.item_case()) {
    case pb::QueueItem::kOperation: {
      const int64_t id = EagerRequestId(context, item.operation());
      Failure failure{id == 0 ? NewRequestId() : id,
                      StrCat(ContextText(context), ", ", item.operation().name())};
      for (int i = index; i < request.queue_size(); ++i) {
        if (!request.queue(i).has_operation()) continue;
        failure.lost.push_back(EagerRequestId(context, request.queue(i).operation()));
      }
      return failure;
    }
    case pb::QueueItem::kSendTensor:
      return numbered(item.send_tensor().op_id(), "a tensor sent as");
    case pb::QueueItem::kSendPackedHandle:
      return numbered(item.send_packed_handle().op_id(), "a packed handle sent as");
    case pb::QueueItem::kHandleToDecref:
      return numbered(item.handle_to_decref().op_id(), "a handle dropped of",
                      /*gives_back=*/true);
    case pb::QueueItem::kRegisterFunction:
      return {NewRequestId(), StrCat(ContextText(context), ", the function ",
                                     item.register_function().function_def().signature().name())};
    default:
      return {NewRequestId(), ContextText(context)};
  }
}

Failure Describe(const pb::RunComponentFunctionRequest& request,
                 const pb::RunComponentFunctionResponse& /*response*/) {
  const int64_t id = EagerRequestId(request.context_id(), request.operation());
  return {id == 0 ? NewRequestId() : id,
          StrCat(ContextText(request.context_id()), ", ", request.operation().name()),
          /*gives_back=*/false,
          {id}};
}

template <typename Request, typename Response>
Failure Describe(const Request& request, const Response& /*response*/) {
  return {NewRequestId(), ContextText(request.context_id())};
}

// The last ops that failed, by the names of their requests. Thread-safe.
class LostOps {
 public:
  void Add(const std::vector<int64_t>& names) {
    MutexLock lock(&mu_);
    for (const int64_t name : names) {
      if (!known_.insert(name).second) continue;
      order_.push_back(name);
      if (order_.size() <= kMost) continue;
      known_.erase(order_.front());
      order_.pop_front();
    }
  }
  bool Has(int64_t name) const {
    MutexLock lock(&mu_);
    return known_.contains(name);
  }

 private:
  static constexpr std::size_t kMost = 4096;
  mutable Mutex mu_;
  absl::flat_hash_set<int64_t> known_ ABSL_GUARDED_BY(mu_);
  std::deque<int64_t> order_ ABSL_GUARDED_BY(mu_);
};

// What the methods' errors have in common.
struct ErrorLog {
  FailedSteps lines;
  LostOps lost;
};

// Where a method's errors go: to the client and into the log, under one name.
class MethodErrors {
 public:
  MethodErrors(const char* path, std::shared_ptr<ErrorLog> log)
      : method_(std::strrchr(path, '/') + 1), log_(std::move(log)) {}

  Status Name(const Failure& failure, const Status& why) const {
    log_->lost.Add(failure.lost);
    // The line of the op itself says what is wrong: there was nothing to give back.
    if (!failure.gives_back || !log_->lost.Has(failure.request_id)) {
      log_->lines.Log(method_, failure.of, failure.request_id, why);
    }
    return OfRequest(why, failure.request_id);
  }

 private:
  const char* const method_;
  const std::shared_ptr<ErrorLog> log_;
};
// Shared by the copies of a handler, which outlive its calls.
using SharedErrors = std::shared_ptr<const MethodErrors>;

// A method that answers at once: `answer(const Request&, Response*, ServerCall*)`. A client calls
// in its own contexts alone.
template <typename Request, typename Response, typename Answer>
RpcServer::Handler AtOnce(const EagerServer* eager, SharedErrors errors, Answer answer) {
  return [eager, errors = std::move(errors), answer](ServerCall* call) {
    Request request;
    Response response;
    Status status = call->Parse(&request);
    if (status.ok()) status = eager->CheckContext(request.context_id(), call->proven_client());
    if (status.ok()) status = answer(request, &response, call);
    if (status.ok()) return call->Finish(response);
    call->Finish(errors->Name(Describe(request, response), status));
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

// What a call reads and answers, as long as it runs.
template <typename Request, typename Response>
struct Exchange {
  Request request;
  Response response;
};

// A method that answers later: `begin(const Request&, const CallOptions&, Response*, done)`.
template <typename Request, typename Response, typename Begin>
RpcServer::Handler Later(const EagerServer* eager, SharedErrors shared_errors, Begin begin) {
  return [eager, shared_errors = std::move(shared_errors), begin](ServerCall* call) {
    const MethodErrors* const errors = shared_errors.get();
    auto exchange = std::make_shared<Exchange<Request, Response>>();
    Status status = call->Parse(&exchange->request);
    if (status.ok()) status = CheckRequest(eager, exchange->request, call->proven_client());
    if (!status.ok()) {
      return call->Finish(errors->Name(Describe(exchange->request, exchange->response), status));
    }
    begin(exchange->request, call->options(), &exchange->response,
          [call, exchange, errors](const Status& done) {
            if (done.ok()) return call->Finish(exchange->response);
            call->Finish(errors->Name(Describe(exchange->request, exchange->response), done));
          });
  };
}

}  // namespace

void AddEagerMethods(EagerServer* eager, RpcServer* server) {
  const auto log = std::make_shared<ErrorLog>();
  const auto errors = [log](const char* path) {
    return std::make_shared<const MethodErrors>(path, log);
  };
  const char* path = methods::kEagerCreateContext;
  server->AddMethod(path,
                    AtOnce<pb::CreateContextRequest, pb::CreateContextResponse>(
                        eager, errors(path),
                        [eager](const auto& request, auto* response, ServerCall* call) {
                          return eager->CreateContext(request, response, call->proven_client(),
                                                      call->caller_host());
                        }),
                    RpcLane::kWork);
  path = methods::kEagerUpdateContext;
  server->AddMethod(path,
                    AtOnce<pb::UpdateContextRequest, pb::UpdateContextResponse>(
                        eager, errors(path),
                        [eager](const auto& request, auto* response, ServerCall* call) {
                          return eager->UpdateContext(request, response, call->caller_host());
                        }),
                    RpcLane::kWork);
  const auto enqueue = [eager, &errors](const char* path) {
    return Later<pb::EnqueueRequest, pb::EnqueueResponse>(
        eager, errors(path),
        [eager](const auto& request, const CallOptions& options, auto* response, auto done) {
          eager->Enqueue(request, options, response, std::move(done));
        });
  };
  path = methods::kEagerEnqueue;
  server->AddMethod(path, enqueue(path), RpcLane::kWork);
  path = methods::kEagerStreamingEnqueue;
  server->AddStream(path, enqueue(path), RpcLane::kWork);
  path = methods::kEagerRunComponentFunction;
  server->AddMethod(
      path,
      Later<pb::RunComponentFunctionRequest, pb::RunComponentFunctionResponse>(
          eager, errors(path),
          [eager](const auto& request, const CallOptions& options, auto* response, auto done) {
            eager->RunComponentFunction(request, options, response, std::move(done));
          }),
      RpcLane::kWork);
  path = methods::kEagerWaitQueueDone;
  server->AddMethod(path, Later<pb::WaitQueueDoneRequest, pb::WaitQueueDoneResponse>(
                              eager, errors(path),
                              [eager](const auto& request, const CallOptions&, auto*, auto done) {
                                eager->WaitQueueDone(request, std::move(done));
                              }));
  path = methods::kEagerKeepAlive;
  server->AddMethod(
      path, AtOnce<pb::KeepAliveRequest, pb::KeepAliveResponse>(
                eager, errors(path), [eager](const auto& request, auto* response, ServerCall*) {
                  return eager->KeepAlive(request, response);
                }));
  path = methods::kEagerCloseContext;
  server->AddMethod(path,
                    AtOnce<pb::CloseContextRequest, pb::CloseContextResponse>(
                        eager, errors(path), [eager](const auto& request, auto*, ServerCall*) {
                          return eager->CloseContext(request);
                        }));
}

}  // namespace millrace
