// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/stub/remote_collectives.h"

#include "base/errors.h"
#include "distributed_runtime/collective_messages.h"
#include "proto/worker.pb.h"
#include "transport/message_call.h"
#include "transport/methods.h"

namespace millrace {

template <typename Response, typename Use>
void RemoteCollectives::Ask(const char* method, WireWriter request,
                            CancellationManager* cancellation, Use use) {
  CallMessage<Response>(channel_, method, {kNoDeadline, cancellation}, std::move(request),
                        [this, use = std::move(use)](const Status& status, Response& response) {
                          if (status.ok()) has_answered_.store(true, std::memory_order_release);
                          use(status, response);
                        });
}

template <typename Response, typename Use>
void RemoteCollectives::AskLeader(const char* method, WireWriter request,
                                  CancellationManager* cancellation, Use use) {
  // A task that cannot be reached is found out by a call that ends; the question itself may take
  // as long as the step.
  if (!has_answered_.load(std::memory_order_acquire)) {
    const CallOptions start{DeadlineAfter(kStart), cancellation};
    return channel_->Call(
        methods::kWorkerGetStatus, start, WireWriter(),
        [this, method, cancellation, request = std::move(request), use = std::move(use)](
            const Status& status, WireReader) mutable {
          if (!status.ok()) {
            return use(errors::IsDeadlineExceeded(status)
                           ? errors::Unavailable(task_, ", which leads the collectives, did not ",
                                                 "answer within ", kStart.count(), " s")
                           : status,
                       Response());
          }
          has_answered_.store(true, std::memory_order_release);
          Ask<Response>(method, std::move(request), cancellation, use);
        },
        CallTerms{.waits_if_down = true});
  }
  Ask<Response>(method, std::move(request), cancellation, std::move(use));
}

void RemoteCollectives::CompleteGroup(const GroupRequest& request,
                                      CancellationManager* cancellation, GroupDone done) {
  pb::CompleteGroupRequest message;
  ToProto(request, &message);
  AskLeader<pb::CompleteGroupResponse>(
      methods::kWorkerCompleteGroup, ToWire(message), cancellation,
      [done = std::move(done)](const Status& status, const pb::CompleteGroupResponse& response) {
        if (!status.ok()) return done(status);
        done(FromProto(response));
      });
}

void RemoteCollectives::CompleteInstance(const InstanceRequest& request,
                                         CancellationManager* cancellation, InstanceDone done) {
  pb::CompleteInstanceRequest message;
  ToProto(request, &message);
  AskLeader<pb::CompleteInstanceResponse>(
      methods::kWorkerCompleteInstance, ToWire(message), cancellation,
      [done = std::move(done)](const Status& status, const pb::CompleteInstanceResponse& response) {
        if (!status.ok()) return done(status);
        done(response.source_rank());
      });
}

void RemoteCollectives::GetStepSequence(int64_t graph_key, CancellationManager* cancellation,
                                        SequenceDone done) {
  pb::GetStepSequenceRequest message;
  message.add_graph_key(graph_key);
  AskLeader<pb::GetStepSequenceResponse>(
      methods::kWorkerGetStepSequence, ToWire(message), cancellation,
      [task = task_, graph_key, done = std::move(done)](
          const Status& status, const pb::GetStepSequenceResponse& response) {
        if (!status.ok()) return done(status);
        for (const pb::StepSequence& sequence : response.step_sequence()) {
          if (sequence.graph_key() == graph_key) return done(sequence.next_step_id());
        }
        done(errors::Internal(task, " gave no step sequence for the graph key ", graph_key));
      });
}

void RemoteCollectives::ReceiveBuffer(const BufferRequest& request,
                                      CancellationManager* cancellation, BufferDone done) {
  pb::RecvBufRequest message;
  ToProto(request, &message);
  const CallOptions options{kNoDeadline, cancellation};
  channel_->Call(
      methods::kWorkerRecvBuf, options, ToWire(message),
      [num_bytes = request.num_bytes, done = std::move(done)](const Status& status, WireReader in) {
        if (!status.ok()) return done(status, Tensor());
        const StatusOr<Tensor> bytes = DecodeRecvBufResponse(in, num_bytes);
        done(bytes.status(), bytes.ok() ? *bytes : Tensor());
      });
}

}  // namespace millrace
