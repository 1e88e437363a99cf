// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/rpc_channel.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <utility>

#include "base/calls/maybe_applied.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "transport/methods.h"
#include "transport/peer_table.h"
#include "transport/security/secret.h"

namespace millrace {

namespace {
struct ClientCall;
}

// The calls whose callback has not returned yet.
struct RpcChannel::Calls {
  Mutex mu;
  CondVar idle;
  bool closed ABSL_GUARDED_BY(mu) = false;
  int count ABSL_GUARDED_BY(mu) = 0;
  ClientCall* first ABSL_GUARDED_BY(mu) = nullptr;  // those without an answer, linked
  std::atomic<bool> answered{false};

  void Remove(ClientCall* call);
  void CallbackReturned() {
    MutexLock lock(&mu);
    if (--count == 0) idle.SignalAll();
  }
};

namespace {

struct ClientCall {
  ClientCall *previous = nullptr, *next = nullptr;
  void (*remove)(void* calls, ClientCall* call) = nullptr;
  void (*callback_returned)(void* calls) = nullptr;
  void* calls = nullptr;

  grpc::ClientContext context;
  grpc::ByteBuffer request, response;
  grpc::Status status;
  const char* method = nullptr;
  std::string peer;
  CancellationManager* cancellation = nullptr;
  CancellationManager::Token token = 0;
  bool cancelled_before = false;  // the call was never sent
  bool is_question = false;       // for a sign of life, or the state of a step
  Status failed;  // what it ends with, if the peer was given up; guarded by the channel's lock
  std::shared_ptr<TlsRefusal> refusal;  // with TLS
  RpcChannel::BytesDone done;
  // Set when the call goes to gRPC, read when it comes back: gRPC orders the two, but in code
  // that sanitizers do not see.
  std::atomic<bool> sent{false};

  // On the pool: the answer is here.
  void Complete() {
    (void)sent.load(std::memory_order_acquire);
    if (cancellation != nullptr) cancellation->DeregisterCallback(token);
    remove(calls, this);  // nobody else knows the call from now on
    const auto returned = callback_returned;
    void* const channel_calls = calls;
    {
      const Status result = Result();
      const RpcChannel::BytesDone callback = std::move(done);
      const grpc::ByteBuffer bytes = std::move(response);
      delete this;
      callback(result, bytes);
    }
    returned(channel_calls);
  }

  Status Result() const {
    if (status.ok()) return OkStatus();
    if (!failed.ok()) return Annotate(failed, StrCat("; the call of ", method, " waited for it"));
    Status result = FromGrpcStatus(status);
    if (errors::IsCancelled(result) &&
        (cancelled_before || (cancellation != nullptr && cancellation->IsCancelled()))) {
      return MarkDerived(
          WithMessage(result, StrCat("the call of ", method, " to ", peer, " was cancelled")));
    }
    if (refusal != nullptr &&
        (errors::IsDeadlineExceeded(result) || errors::IsUnavailable(result))) {
      const Status refused = refusal->Get();
      if (!refused.ok()) {
        return errors::PermissionDenied("the call of ", method, " to ", peer,
                                        " was not sent: ", Message(refused));
      }
    }
    if (errors::IsDeadlineExceeded(result)) {
      return WithMessage(result, StrCat("no answer from ", peer, " to ", method,
                                        " within the deadline (", Message(result), ")"));
    }
    // Clients of TensorFlow 2 tell by these words which task was lost with what it had.
    if (errors::IsUnavailable(result) || result.GetPayload(kWorkerRestartedPayload).has_value()) {
      return Annotate(result, StrCat("\nAdditional GRPC error information from remote target ",
                                     peer, " while calling ", method));
    }
    return result;
  }
};

grpc::ChannelArguments MakeChannelArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // Tasks of a cluster reach each other directly, whatever the environment says.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A call is sent once: what may be tried again, the caller tries again.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // A task that came back on its port is found within a second.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // A connection of its own, which ends with the channel.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

}  // namespace

void RpcChannel::Calls::Remove(ClientCall* call) {
  if (call->status.ok()) answered.store(true, std::memory_order_relaxed);
  MutexLock lock(&mu);
  (call->previous != nullptr ? call->previous->next : first) = call->next;
  if (call->next != nullptr) call->next->previous = call->previous;
}

std::shared_ptr<grpc::Channel> NewGrpcChannel(const std::string& address,
                                              const LoadedCredentials* credentials,
                                              const std::string& task,
                                              std::shared_ptr<TlsRefusal> refusal) {
  InitGrpc();
  return grpc::CreateCustomChannel(address,
                                   credentials == nullptr
                                       ? grpc::InsecureChannelCredentials()
                                       : credentials->ForChannel(task, std::move(refusal)),
                                   MakeChannelArguments());
}

RpcChannel::RpcChannel(const std::string& address, std::string peer, ThreadPool* pool,
                       std::string identity, std::shared_ptr<const LoadedCredentials> credentials,
                       const std::string& task)
    : address_(address),
      peer_(std::move(peer)),
      named_peer_(peer_.find(address) == std::string::npos ? StrCat(peer_, " at ", address)
                                                           : peer_),
      identity_(std::move(identity)),
      credentials_(std::move(credentials)),
      refusal_(credentials_ != nullptr && credentials_->has_tls() ? std::make_shared<TlsRefusal>()
                                                                  : nullptr),
      pool_(pool),
      calls_(std::make_unique<Calls>()) {
  channel_ = NewGrpcChannel(address, credentials_.get(), task, refusal_);
}

RpcChannel::~RpcChannel() {
  MutexLock lock(&calls_->mu);
  calls_->closed = true;
  for (ClientCall* call = calls_->first; call != nullptr; call = call->next) {
    call->context.TryCancel();
  }
  while (calls_->count > 0) calls_->idle.Wait(&calls_->mu);
}

bool RpcChannel::has_answered() const { return calls_->answered.load(std::memory_order_relaxed); }

bool RpcChannel::waits() const {
  MutexLock lock(&calls_->mu);
  for (const ClientCall* call = calls_->first; call != nullptr; call = call->next) {
    if (!call->is_question) return true;
  }
  return false;
}

void RpcChannel::FailWaiting(const Status& why) {
  MutexLock lock(&calls_->mu);
  for (ClientCall* call = calls_->first; call != nullptr; call = call->next) {
    if (call->is_question || !call->failed.ok()) continue;
    call->failed = why;
    call->context.TryCancel();
  }
}

void RpcChannel::Call(const char* method, const CallOptions& options, WireWriter request, Done done,
                      const CallTerms& terms) {
  Call(
      method, options, request.is_oversized() ? grpc::ByteBuffer() : ToByteBuffer(request),
      terms.waits_if_down ? IfDown::kWait : IfDown::kFail,
      [method, done = std::move(done)](Status status, const grpc::ByteBuffer& bytes) {
        if (status.ok()) return done(std::move(status), ReceivedBytes(bytes).reader());
        // What a step itself says comes in an answer: nobody knows how far this one came.
        if (methods::HasEffects(method)) status = MarkMaybeApplied(std::move(status));
        done(std::move(status), WireReader());
      },
      terms.begins_nothing ? Lane::kControl : Lane::kWork);
}

void RpcChannel::Notify(const char* method, const CallOptions& options, WireWriter message,
                        std::function<void(Status)> told) {
  Call(
      method, options, std::move(message),
      [told = std::move(told)](Status status, WireReader) { told(std::move(status)); },
      CallTerms{.begins_nothing = true});
}

void RpcChannel::Call(const char* method, const CallOptions& options, grpc::ByteBuffer request,
                      IfDown if_down, BytesDone done, Lane lane) {
  auto* call = new ClientCall;
  call->calls = calls_.get();
  call->remove = [](void* calls, ClientCall* c) { static_cast<Calls*>(calls)->Remove(c); };
  call->callback_returned = [](void* calls) { static_cast<Calls*>(calls)->CallbackReturned(); };
  call->request = std::move(request);
  call->method = method;
  call->peer = named_peer_;
  call->done = std::move(done);
  call->is_question = methods::IsQuestion(method);
  if (options.deadline != kNoDeadline) call->context.set_deadline(ToSystemTime(options.deadline));
  if (!identity_.empty()) call->context.AddMetadata(kPeerMetadata, identity_);
  if (credentials_ != nullptr && credentials_->has_token()) {
    call->context.AddMetadata(kTokenMetadata, credentials_->token());
  }
  call->refusal = refusal_;
  call->context.set_wait_for_ready(if_down == IfDown::kWait);
  {
    MutexLock lock(&calls_->mu);
    ++calls_->count;
    call->next = calls_->first;
    if (call->next != nullptr) call->next->previous = call;
    calls_->first = call;
    // A cancellation before the call has begun is remembered by its context.
    if (calls_->closed) call->context.TryCancel();
  }
  if (!call->request.Valid()) {
    call->status = grpc::Status(
        grpc::StatusCode::INVALID_ARGUMENT,
        StrCat("the request of ", method, " to ", peer_,
               " would have 2 GiB or more, which no message may have: make its graph smaller, by ",
               "feeding, restoring or computing what is in its biggest constants"));
    call->Complete();
    return;
  }
  if (options.cancellation != nullptr) {
    call->cancellation = options.cancellation;
    call->token = options.cancellation->NextToken();
    if (!options.cancellation->RegisterCallback(call->token,
                                                [call] { call->context.TryCancel(); })) {
      call->cancellation = nullptr;
      call->status = grpc::Status(grpc::StatusCode::CANCELLED, "");
      call->cancelled_before = true;
      call->Complete();
      return;
    }
  }
  ThreadPool* pool = lane == Lane::kControl && control_ != nullptr ? control_ : pool_;
  call->sent.store(true, std::memory_order_release);
  grpc::GenericStub(channel_).UnaryCall(
      &call->context, method, grpc::StubOptions(), &call->request, &call->response,
      [call, pool](grpc::Status status) {
        call->status = std::move(status);
        pool->Schedule(
            ThreadPool::Task{[](void* arg) { static_cast<ClientCall*>(arg)->Complete(); }, call});
      });
}

}  // namespace millrace
