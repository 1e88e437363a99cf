// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/rpc_stream.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/calls/request_text.h"
#include "base/cancellation.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "transport/grpc/grpc_util.h"
#include "transport/grpc/peer_host.h"
#include "transport/grpc/refusal_log.h"
#include "transport/server_call.h"

namespace millrace {

Status CheckAllowed(const Serving& serving, const grpc::CallbackServerContext& context,
                    const Method& method, ProvenCaller* proven) {
  if (serving.credentials == nullptr) return OkStatus();
  const std::string_view own =
      serving.peers == nullptr ? std::string_view() : std::string_view(serving.peers->own().task);
  MR_ASSIGN_OR_RETURN(*proven, serving.credentials->CheckCall(context, method.path, own));
  if (proven->task.empty() || serving.peers == nullptr ||
      !serving.peers->Address(proven->task).empty()) {
    return OkStatus();
  }
  return errors::PermissionDenied("the caller has the certificate of ", proven->task,
                                  ", which is no task of the cluster of ",
                                  serving.peers->own().task);
}

Status TakePlace(const Serving& serving, const Method& method) {
  if (method.calls.fetch_add(1, std::memory_order_relaxed) < method.most_calls) return OkStatus();
  method.LeavePlace();
  const std::string task =
      serving.peers == nullptr ? std::string("this server") : serving.peers->own().task;
  return errors::ResourceExhausted(
      task, " serves ", method.most_calls, " calls of ", method.path,
      " at once (--max_method_calls), and so many are there: try again "
      "once some have ended");
}

std::string WhoCalls(const grpc::CallbackServerContext& context) {
  const std::string name = NameShown(context);
  return StrCat(AddressOfPeer(context.peer()), name.empty() ? "" : " (certificate ", name,
                name.empty() ? "" : ")");
}

Status Refusal(const grpc::CallbackServerContext& context, const Method& method,
               const Status& why) {
  const int64_t id = NewRequestId();  // nothing of the request has been read
  Refusals().Call([&context] { return WhoCalls(context); }, method.path, id, why);
  return method.path.starts_with("/tensorflow.WorkerService/") ? why : OfRequest(why, id);
}

bool FindCaller(const grpc::CallbackServerContext& context, PeerIdentity* caller) {
  const auto& metadata = context.client_metadata();
  const auto it = metadata.find(kPeerMetadata);
  return it != metadata.end() &&
         PeerIdentity::Parse({it->second.data(), it->second.size()}, caller);
}

Status CheckClaim(const Serving& serving, const PeerIdentity& caller,
                  const std::string& proven_caller) {
  if (!proven_caller.empty() && caller.task != proven_caller) {
    return errors::PermissionDenied("the caller says that it is ", caller.task,
                                    "; its certificate is that of ", proven_caller);
  }
  return serving.peers->CheckNames(caller);
}

// One message at a time is read, handled and answered: what the caller sends meanwhile waits in the
// connection, whose flow control bounds it.
class RpcStream final : public ServerCall,
                        public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  RpcStream(const Method* method, Serving* serving, grpc::CallbackServerContext* context)
      : method_(method),
        serving_(serving),
        context_(context),
        deadline_(FromSystemTime(context->deadline())) {
    Status allowed = CheckAllowed(*serving, *context, *method, &proven_);
    PeerIdentity caller;
    if (allowed.ok() && serving->peers != nullptr && FindCaller(*context, &caller)) {
      allowed = CheckClaim(*serving, caller, proven_.task);
    }
    if (allowed.ok() && method->most_calls > 0) {
      allowed = TakePlace(*serving, *method);
      has_place_ = allowed.ok();
    }
    if (!allowed.ok()) allowed = Refusal(*context, *method, allowed);
    {
      MutexLock lock(&serving_->mu);
      if (serving_->ending) allowed = Stopping();
      serving_->streams.insert(this);
    }
    if (allowed.ok()) {
      StartRead(&request_);
    } else {
      // Counts as a unary call that is refused does.
      if (method_->stats != nullptr) method_->stats->Begin(0);
      Answered(false, 0);
      End(allowed);
    }
  }

  std::span<const WirePiece> request() override { return received_->pieces(); }
  CallOptions options() override { return {deadline_, &cancellation_}; }
  std::string_view proven_caller() const override { return proven_.task; }
  std::string_view proven_client() const override { return proven_.client; }
  std::string caller_text() const override { return WhoCalls(*context_); }
  Deadline arrival() const override { return arrival_; }

  void Finish(const Status& status) override {
    if (status.ok()) return Finish(WireWriter());
    Answered(false, 0);
    End(status);
  }
  void Finish(WireWriter response) override {
    response_ = ToByteBuffer(response);
    Answered(true, static_cast<int64_t>(response_.Length()));
    StartWrite(&response_);
  }

  // From Shutdown: no message is being handled, or the next answer will end the stream.
  void EndIfIdle() {
    if (state_.exchange(kEnding) == kIdle) End(Stopping());
  }

 private:
  enum State { kIdle, kBusy, kEnding };

  // A message counts as a call.
  void Answered(bool ok, int64_t bytes) {
    if (method_->stats != nullptr) method_->stats->End(ok, bytes, NanosSince(arrival_));
  }

  static Status Stopping() { return errors::Unavailable("the server is stopping"); }

  void End(const Status& status) {
    if (ended_.exchange(true)) return;
    grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>::Finish(ToGrpcStatus(status));
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(OkStatus());
    State idle = kIdle;
    if (!state_.compare_exchange_strong(idle, kBusy)) return;  // whoever ends the streams did it
    received_.emplace(request_);
    arrival_ = SteadyClock::now();
    if (method_->stats != nullptr) method_->stats->Begin(static_cast<int64_t>(request_.Length()));
    references_.fetch_add(1, std::memory_order_relaxed);
    serving_->handlers.Enter();
    serving_->PoolOf(*method_)->Schedule(
        ThreadPool::Task{[](void* arg) {
                           auto* const stream = static_cast<RpcStream*>(arg);
                           Serving* const serving = stream->serving_;
                           (void)stream->references_.fetch_add(0, std::memory_order_acquire);
                           Serve(stream->method_->handler, stream);
                           stream->Unref();
                           serving->handlers.Leave();
                         },
                         this});
  }

  void OnWriteDone(bool ok) override {
    received_.reset();
    request_.Clear();
    State busy = kBusy;
    if (!ok) return End(errors::Cancelled("the caller went away"));
    if (!state_.compare_exchange_strong(busy, kIdle)) return End(Stopping());
    StartRead(&request_);
  }

  // Cancelling runs callbacks of the engine: not on this thread.
  void OnCancel() override {
    references_.fetch_add(1, std::memory_order_relaxed);
    serving_->handlers.Enter();
    serving_->control->Schedule(
        ThreadPool::Task{[](void* arg) {
                           auto* const stream = static_cast<RpcStream*>(arg);
                           Serving* const serving = stream->serving_;
                           stream->cancellation_.StartCancel(
                               errors::Cancelled("the caller cancelled the stream or went away"));
                           stream->Unref();
                           serving->handlers.Leave();
                         },
                         this});
  }

  void OnDone() override {
    {
      MutexLock lock(&serving_->mu);
      serving_->streams.erase(this);
    }
    if (has_place_) method_->LeavePlace();
    Unref();
  }

  void Unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  const Method* const method_;
  Serving* const serving_;
  grpc::CallbackServerContext* const context_;  // gRPC's, until OnDone
  const Deadline deadline_;
  Deadline arrival_ = SteadyClock::now();
  ProvenCaller proven_;
  bool has_place_ = false;
  grpc::ByteBuffer request_, response_;
  std::optional<ReceivedBytes> received_;
  CancellationManager cancellation_;
  std::atomic<State> state_{kIdle};
  std::atomic<bool> ended_{false};
  std::atomic<int> references_{1};  // gRPC's, until OnDone
};

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* NewRpcStream(
    const Method* method, Serving* serving, grpc::CallbackServerContext* context) {
  return new RpcStream(method, serving, context);
}

void EndRpcStreams(Serving* serving) {
  // A stream goes only after it has left the list.
  MutexLock lock(&serving->mu);
  serving->ending = true;
  for (RpcStream* stream : serving->streams) stream->EndIfIdle();
}

}  // namespace millrace
