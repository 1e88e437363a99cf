#include "distributed_runtime/grpc/remote_collectives.h"

#include "base/errors.h"
#include "distributed_runtime/collective_messages.h"
#include "distributed_runtime/grpc/grpc_util.h"
#include "distributed_runtime/grpc/methods.h"
#include "proto/worker.pb.h"

namespace millrace {

template <typename Response, typename Use>
void RemoteCollectives::Ask(const char* method, const grpc::ByteBuffer& request,
                            CancellationManager* cancellation, Use use) {
  channel_->Call(method, {kNoDeadline, cancellation}, request, RpcChannel::IfDown::kFail,
                 [this, use = std::move(use)](Status status, const grpc::ByteBuffer& bytes) {
                   Response response;
                   if (status.ok()) status = ReceivedBytes(bytes).Parse(&response);
                   if (status.ok()) has_answered_.store(true, std::memory_order_release);
                   use(status, response);
                 });
}

template <typename Response, typename Use>
void RemoteCollectives::AskLeader(const char* method, const google::protobuf::MessageLite& request,
                                  CancellationManager* cancellation, Use use) {
  // A task that cannot be reached is found out by a call that ends; the question itself may take
  // as long as the step.
  if (!has_answered_.load(std::memory_order_acquire)) {
    const CallOptions start{DeadlineAfter(kStart), cancellation};
    return channel_->Call(
        methods::kWorkerGetStatus, start, ToByteBuffer(pb::GetStatusRequest()),
        RpcChannel::IfDown::kWait,
        [this, method, cancellation, bytes = ToByteBuffer(request), use = std::move(use)](
            const Status& status, const grpc::ByteBuffer&) {
          if (!status.ok()) {
            return use(errors::IsDeadlineExceeded(status)
                           ? errors::Unavailable(task_, ", which leads the collectives, did not ",
                                                 "answer within ", kStart.count(), " s")
                           : status,
                       Response());
          }
          has_answered_.store(true, std::memory_order_release);
          Ask<Response>(method, bytes, cancellation, use);
        });
  }
  Ask<Response>(method, ToByteBuffer(request), cancellation, std::move(use));
}

void RemoteCollectives::CompleteGroup(const GroupRequest& request,
                                      CancellationManager* cancellation, GroupDone done) {
  pb::CompleteGroupRequest message;
  ToProto(request, &message);
  AskLeader<pb::CompleteGroupResponse>(
      methods::kWorkerCompleteGroup, message, cancellation,
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
      methods::kWorkerCompleteInstance, message, cancellation,
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
      methods::kWorkerGetStepSequence, message, cancellation,
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
  const auto finish = [num_bytes = request.num_bytes, done = std::move(done)](
                          const Status& status, const WireReader& in) {
    if (!status.ok()) return done(status, Tensor());
    const StatusOr<Tensor> bytes = DecodeRecvBufResponse(in, num_bytes);
    done(bytes.status(), bytes.ok() ? *bytes : Tensor());
  };
  if (links_ != nullptr) {
    if (const RefPtr<Link> link = links_->Find(task_)) {
      WireWriter writer;
      writer.AppendMessage(message);
      return link->Call(LinkMethod::kRecvBuf, options, std::move(writer), finish);
    }
  }
  channel_->Call(methods::kWorkerRecvBuf, options, ToByteBuffer(message), RpcChannel::IfDown::kFail,
                 [finish](const Status& status, const grpc::ByteBuffer& bytes) {
                   if (!status.ok()) return finish(status, WireReader());
                   finish(status, ReceivedBytes(bytes).reader());
                 });
}

}  // namespace millrace
