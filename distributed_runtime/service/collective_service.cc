// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/service/collective_service.h"

#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "distributed_runtime/collective_messages.h"
#include "proto/worker.pb.h"
#include "transport/methods.h"

namespace millrace {
namespace {

// A call's answer is sent as soon as it is known, and its cancellation with it: what is waited
// for ends by the caller's cancellation, which a passed deadline is too.
CancellationManager* CancellationOf(ServerCall* call) { return call->options().cancellation; }

void CompleteGroup(CollectivePeer* collectives, ServerCall* call) {
  pb::CompleteGroupRequest message;
  const Status parsed = call->Parse(&message);
  const StatusOr<GroupRequest> request = parsed.ok() ? FromProto(message) : parsed;
  if (!request.ok()) return call->Finish(request.status());
  collectives->CompleteGroup(*request, CancellationOf(call),
                             [call](StatusOr<std::shared_ptr<const CollectiveGroup>> group) {
                               if (!group.ok()) return call->Finish(group.status());
                               pb::CompleteGroupResponse response;
                               ToProto(**group, &response);
                               call->Finish(response);
                             });
}

void CompleteInstance(CollectivePeer* collectives, ServerCall* call) {
  pb::CompleteInstanceRequest message;
  const Status parsed = call->Parse(&message);
  const StatusOr<InstanceRequest> request = parsed.ok() ? FromProto(message) : parsed;
  if (!request.ok()) return call->Finish(request.status());
  collectives->CompleteInstance(*request, CancellationOf(call),
                                [call, key = request->instance_key](StatusOr<int> source_rank) {
                                  if (!source_rank.ok()) return call->Finish(source_rank.status());
                                  pb::CompleteInstanceResponse response;
                                  response.set_instance_key(key);
                                  response.set_source_rank(*source_rank);
                                  call->Finish(response);
                                });
}

// Masters ask for one.
constexpr int kMostKeysAtOnce = 1024;

// The answers of several keys, in their order.
struct Sequences {
  pb::GetStepSequenceResponse response;
  Mutex mu;
  int pending ABSL_GUARDED_BY(mu) = 0;
  Status error ABSL_GUARDED_BY(mu);
};

void GetStepSequence(CollectivePeer* collectives, ServerCall* call) {
  pb::GetStepSequenceRequest request;
  const Status parsed = call->Parse(&request);
  if (!parsed.ok()) return call->Finish(parsed);
  auto all = std::make_shared<Sequences>();
  const int count = request.graph_key_size();
  if (count == 0) return call->Finish(all->response);
  if (count > kMostKeysAtOnce) {
    return call->Finish(errors::InvalidArgument("GetStepSequence for ", count,
                                                " graph keys; at most ", kMostKeysAtOnce,
                                                " may be asked for at once"));
  }
  for (const int64_t key : request.graph_key()) {
    all->response.add_step_sequence()->set_graph_key(key);
  }
  {
    MutexLock lock(&all->mu);
    all->pending = count;
  }
  for (int i = 0; i < count; ++i) {
    collectives->GetStepSequence(
        request.graph_key(i), CancellationOf(call), [call, all, i](const StatusOr<int64_t>& next) {
          Status error;
          {
            MutexLock lock(&all->mu);
            if (next.ok()) {
              all->response.mutable_step_sequence(i)->set_next_step_id(*next);
            } else if (all->error.ok()) {
              all->error = next.status();
            }
            if (--all->pending > 0) return;
            error = all->error;
          }
          if (!error.ok()) return call->Finish(error);
          call->Finish(all->response);
        });
  }
}

void RecvBuf(CollectivePeer* collectives, ServerCall* call) {
  pb::RecvBufRequest message;
  const Status parsed = call->Parse(&message);
  if (!parsed.ok()) return call->Finish(parsed);
  collectives->ReceiveBuffer(FromProto(message), CancellationOf(call),
                             [call](const Status& status, const Tensor& piece) {
                               if (!status.ok()) return call->Finish(status);
                               WireWriter response;
                               EncodeRecvBufResponse(piece, WallMicros(), &response);
                               call->Finish(std::move(response));
                             });
}

}  // namespace

void AddCollectiveMethods(CollectivePeer* collectives, MethodServer* server) {
  const std::pair<const char*, void (*)(CollectivePeer*, ServerCall*)> methods[] = {
      {methods::kWorkerCompleteGroup, CompleteGroup},
      {methods::kWorkerCompleteInstance, CompleteInstance},
      {methods::kWorkerGetStepSequence, GetStepSequence},
      {methods::kWorkerRecvBuf, RecvBuf}};
  for (const auto& [path, serve] : methods) {
    server->AddMethod(path, [collectives, serve = serve, path = path](ServerCall* call) {
      if (collectives == nullptr) return call->Finish(errors::Unimplemented(path));
      serve(collectives, call);
    });
  }
}

}  // namespace millrace
