// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/call_proxy.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include <atomic>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/strings.h"
#include "transport/grpc/grpc_util.h"
#include "transport/grpc/listener.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/peer_table.h"
#include "transport/security/secret.h"

namespace millrace {
namespace {

// What all calls of a proxy share.
struct Upstream {
  std::string target;
  std::shared_ptr<const LoadedCredentials> credentials;
  std::shared_ptr<TlsRefusal> refusal;  // null without TLS
  std::shared_ptr<grpc::Channel> channel;
};

// Metadata that a caller's library adds, or that say who calls: the proxy's own take their place.
bool IsOfTheConnection(std::string_view key) {
  return key.starts_with("grpc-") || key.starts_with(":") || key == "user-agent" || key == "te" ||
         key == "content-type" || key == kPeerMetadata || key == kTokenMetadata;
}

// One call: a stream in each direction, of which one message at a time is on its way. It is gone
// once the caller's side is done, which ends after the task's.
class Relay final : public grpc::ServerGenericBidiReactor {
 public:
  Relay(const Upstream& upstream, grpc::GenericCallbackServerContext* context)
      : upstream_(upstream), caller_(context), stub_(upstream.channel), task_side_(this) {
    // gRPC ends no call before this constructor has returned.
    StartRead(&request_);
    forwarded_.set_deadline(context->deadline());
    for (const auto& [key, value] : context->client_metadata()) {
      const std::string name(key.data(), key.size());
      if (!IsOfTheConnection(name)) {
        forwarded_.AddMetadata(name, std::string(value.data(), value.size()));
      }
    }
    if (upstream.credentials != nullptr && upstream.credentials->has_token()) {
      forwarded_.AddMetadata(kTokenMetadata, upstream.credentials->token());
    }
    method_ = context->method();
    stub_.PrepareBidiStreamingCall(&forwarded_, method_, grpc::StubOptions(), &task_side_);
    task_side_.Begin(&response_);
  }

 private:
  // The half that calls. Its hold lasts until nothing more can come from the task.
  class TaskSide final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    explicit TaskSide(Relay* relay) : relay_(relay) {}
    void Begin(grpc::ByteBuffer* response) {
      AddHold();
      StartRead(response);
      relay_->begun_.store(true, std::memory_order_release);
      StartCall();
    }
    void OnReadDone(bool ok) override {
      (void)relay_->begun_.load(std::memory_order_acquire);
      if (ok) return relay_->StartWrite(&relay_->response_);
      {
        MutexLock lock(&relay_->mu_);
        relay_->task_ended_ = true;
      }
      RemoveHold();
    }
    void OnWriteDone(bool ok) override {
      if (ok) relay_->StartRead(&relay_->request_);
    }
    void OnDone(const grpc::Status& status) override { relay_->End(status); }

   private:
    Relay* const relay_;
  };

  void OnReadDone(bool ok) override {
    (void)begun_.load(std::memory_order_acquire);
    MutexLock lock(&mu_);
    if (task_ended_) return;
    if (ok) {
      task_side_.StartWrite(&request_);
    } else {
      task_side_.StartWritesDone();
    }
  }
  // What a caller that is gone cannot be sent is read to its end all the same.
  void OnWriteDone(bool ok) override {
    if (!ok) forwarded_.TryCancel();
    task_side_.StartRead(&response_);
  }
  void OnCancel() override { forwarded_.TryCancel(); }
  void OnDone() override {
    (void)ended_.load(std::memory_order_acquire);
    delete this;
  }

  // The relay may be gone afterwards.
  void End(const grpc::Status& status) {
    for (const auto& [key, value] : forwarded_.GetServerTrailingMetadata()) {
      const std::string name(key.data(), key.size());
      if (!IsOfTheConnection(name)) {
        caller_->AddTrailingMetadata(name, std::string(value.data(), value.size()));
      }
    }
    ended_.store(true, std::memory_order_release);
    Finish(Explained(status));
  }

  grpc::Status Explained(const grpc::Status& status) const {
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE || upstream_.refusal == nullptr) {
      return status;
    }
    const Status refused = upstream_.refusal->Get();
    if (refused.ok()) return status;
    return ToGrpcStatus(errors::PermissionDenied("the call of ", method_, " to ", upstream_.target,
                                                 " was not passed on: ", Message(refused)));
  }

  const Upstream& upstream_;
  grpc::GenericCallbackServerContext* const caller_;
  std::string method_;
  grpc::ClientContext forwarded_;
  grpc::GenericStub stub_;
  grpc::ByteBuffer request_, response_;
  // Order that gRPC keeps, too, but in code that sanitizers do not see.
  std::atomic<bool> begun_{false}, ended_{false};
  Mutex mu_;
  bool task_ended_ ABSL_GUARDED_BY(mu_) = false;  // nothing may be begun on its side
  TaskSide task_side_;
};

class RelayService final : public grpc::CallbackGenericService {
 public:
  explicit RelayService(Upstream upstream) : upstream_(std::move(upstream)) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Relay(upstream_, context);
  }

 private:
  const Upstream upstream_;
};

Upstream Connect(const CallProxyOptions& options) {
  Upstream upstream{options.target, options.credentials, nullptr, nullptr};
  if (options.credentials != nullptr && options.credentials->has_tls()) {
    upstream.refusal = std::make_shared<TlsRefusal>();
  }
  upstream.channel =
      NewGrpcChannel(options.target, options.credentials.get(), "", upstream.refusal);
  return upstream;
}

}  // namespace

struct CallProxy::Impl {
  explicit Impl(const CallProxyOptions& options) : service(Connect(options)) {}

  RelayService service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<Listener> listener;
  std::string address;
};

CallProxy::CallProxy(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

CallProxy::~CallProxy() {
  impl_->listener->Stop();
  impl_->server->Shutdown(std::chrono::system_clock::now());
  impl_->server->Wait();
}

const std::string& CallProxy::address() const { return impl_->address; }

StatusOr<std::unique_ptr<CallProxy>> CallProxy::Start(const CallProxyOptions& options) {
  InitGrpc();
  auto impl = std::make_unique<Impl>(options);
  ListenerOptions listening;
  listening.max_connections = options.max_connections;
  listening.loopback_only = true;
  Impl* const served = impl.get();  // until the listener has stopped
  impl->listener = std::make_unique<Listener>(
      listening, [served](int fd) { grpc::AddInsecureChannelFromFd(served->server.get(), fd); });
  const StatusOr<int> port = impl->listener->Open(options.listen);
  if (!port.ok()) {
    return errors::Unavailable(
        "cannot listen on ", options.listen, ": ", Message(port.status()),
        "; whoever reaches a proxy is let in, so it listens on an address of ",
        "loopback alone: 127.0.0.1:PORT, [::1]:PORT or localhost:PORT");
  }
  impl->address = StrCat(options.listen.substr(0, options.listen.rfind(':')), ":", *port);
  grpc::ServerBuilder builder;
  builder.RegisterCallbackGenericService(&impl->service);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) return errors::Unavailable("could not start the proxy's server");
  impl->listener->Start();
  return std::unique_ptr<CallProxy>(new CallProxy(std::move(impl)));
}

}  // namespace millrace
