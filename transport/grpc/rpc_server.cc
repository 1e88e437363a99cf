// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/rpc_server.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/use_count.h"
#include "transport/grpc/grpc_util.h"
#include "transport/grpc/health_service.h"
#include "transport/grpc/listener.h"
#include "transport/grpc/peer_host.h"
#include "transport/grpc/rpc_serving.h"
#include "transport/grpc/rpc_stream.h"
#include "transport/methods.h"

namespace millrace {
namespace {

// From the first bytes of a TLS connection until both ends have shown their certificates.
constexpr std::chrono::milliseconds kHandshakeLimit{5000};
// For those who watch to take what they are told last, where calls that run may have longer.
constexpr std::chrono::milliseconds kLastAnswerLimit{1000};

// A call in the form gRPC wants. It lives until gRPC is done with it and no cancellation of it
// runs any more.
class GrpcServerCall final : public ServerCall, public grpc::ServerUnaryReactor {
 public:
  GrpcServerCall(const Method* method, Serving* serving, grpc::CallbackServerContext* context,
                 const grpc::ByteBuffer* request, grpc::ByteBuffer* response)
      : method_(method),
        serving_(serving),
        context_(context),
        request_(request),
        response_(response),
        deadline_(FromSystemTime(context->deadline())) {}

  void Post() {
    references_.store(1, std::memory_order_release);  // for OnCancel, on another of gRPC's threads
    serving_->handlers.Enter();
    if (method_->stats != nullptr) {
      method_->stats->Begin(static_cast<int64_t>(request_->Length()));
    }
    // A flood of one method ends here, and not in the queue that the others wait in as well.
    if (method_->most_calls > 0) {
      Status taken = CheckAllowed(*serving_, *context_, *method_, &proven_);
      if (taken.ok()) taken = TakePlace(*serving_, *method_);
      if (!taken.ok()) return Refuse(Refusal(*context_, *method_, taken));
      has_place_ = true;
    }
    LanePool()->Schedule(
        ThreadPool::Task{[](void* arg) { static_cast<GrpcServerCall*>(arg)->Serve(); }, this});
  }

  std::span<const WirePiece> request() override {
    if (!received_) received_.emplace(*request_);
    return received_->pieces();
  }
  CallOptions options() override { return {deadline_, &cancellation_}; }
  std::string_view proven_caller() const override { return proven_.task; }
  std::string_view proven_client() const override { return proven_.client; }
  std::string caller_text() const override { return WhoCalls(*context_); }
  CallerHost caller_host() const override { return HostOfPeer(context_->peer()); }
  Deadline arrival() const override { return arrival_; }

  void Finish(const Status& status) override {
    if (status.ok()) *response_ = ToByteBuffer(WireWriter());
    FinishWith(ToGrpcStatus(status));
  }
  void Finish(WireWriter response) override {
    *response_ = ToByteBuffer(response);
    FinishWith(grpc::Status::OK);
  }

 private:
  // Leaves the handlers at its end.
  void Serve() {
    if (!has_place_) {
      const Status allowed = CheckAllowed(*serving_, *context_, *method_, &proven_);
      if (!allowed.ok()) return Refuse(Refusal(*context_, *method_, allowed));
    }
    PeerIdentity caller;
    if (serving_->peers == nullptr || !FindCaller(*context_, &caller)) return Handle();
    const Status named = CheckClaim(*serving_, caller, proven_.task);
    if (!named.ok()) return Refuse(Refusal(*context_, *method_, named));
    if (serving_->counted_peers != nullptr) {
      if (PeerStats* const peer = serving_->counted_peers->Find(caller.task)) peer->Heard();
    }
    if (method_->asks_nobody) return Handle();
    serving_->peers->Admit(
        caller.task, caller.incarnation,
        [this, here = std::this_thread::get_id()](const StatusOr<PeerTable::Standing>& standing) {
          if (!standing.ok()) return Refuse(Refusal(*context_, *method_, standing.status()));
          if (std::this_thread::get_id() == here) return Handle();
          // Whoever brought the answer may be of the other lane.
          LanePool()->Schedule(ThreadPool::Task{
              [](void* arg) { static_cast<GrpcServerCall*>(arg)->Handle(); }, this});
        });
  }
  ThreadPool* LanePool() const { return serving_->PoolOf(*method_); }
  // Nobody waits for an answer any more: then nothing shall come of the call.
  void Handle() {
    if (method_->lane == RpcLane::kWork) {
      if (cancellation_.IsCancelled() || context_->IsCancelled()) {
        return Refuse(errors::Cancelled("the call was cancelled before it was its turn"));
      }
      if (deadline_ != kNoDeadline && SteadyClock::now() >= deadline_) {
        return Refuse(errors::DeadlineExceeded("the call's deadline passed before its turn"));
      }
    }
    Serving* const serving = serving_;
    millrace::Serve(method_->handler, this);  // the call may be gone
    serving->handlers.Leave();
  }
  void Refuse(const Status& status) {
    Serving* const serving = serving_;
    Finish(status);
    serving->handlers.Leave();
  }

  // The call may be gone afterwards. Whoever frees it does so after all that was done to it until
  // here: gRPC's OnDone comes later, but only gRPC knows (see Serving::open).
  void FinishWith(const grpc::Status& status) {
    if (method_->stats != nullptr) {
      method_->stats->End(status.ok(), static_cast<int64_t>(response_->Length()),
                          NanosSince(arrival_));
    }
    if (has_place_) method_->LeavePlace();
    references_.fetch_add(0, std::memory_order_release);
    grpc::ServerUnaryReactor::Finish(status);
  }
  // Cancelling runs callbacks of the engine: not on this thread.
  void OnCancel() override {
    references_.fetch_add(1, std::memory_order_acquire);
    serving_->handlers.Enter();
    serving_->control->Schedule(
        ThreadPool::Task{[](void* arg) {
                           auto* call = static_cast<GrpcServerCall*>(arg);
                           Serving* const serving = call->serving_;
                           call->cancellation_.StartCancel(
                               errors::Cancelled("the caller cancelled the call or went away"));
                           call->Unref();
                           serving->handlers.Leave();
                         },
                         this});
  }
  void OnDone() override { Unref(); }
  // Both only post or free: no need for another of gRPC's threads.
  bool InternalInlineable() override { return true; }

  void Unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  const Method* const method_;
  Serving* const serving_;
  grpc::CallbackServerContext* const context_;
  const grpc::ByteBuffer* const request_;
  std::optional<ReceivedBytes> received_;  // the request, once it was looked at
  grpc::ByteBuffer* const response_;
  const Deadline deadline_;
  const Deadline arrival_ = SteadyClock::now();
  ProvenCaller proven_;
  bool has_place_ = false;  // whose caller was allowed to call
  CancellationManager cancellation_;
  std::atomic<int> references_{0};
};

// Of "/package.Service/Method" the last words.
struct MethodNames {
  explicit MethodNames(std::string_view path)
      : method(path.substr(path.rfind('/') + 1)),
        service(path.substr(0, path.size() - method.size() - 1)) {
    service.remove_prefix(service.find_last_of("/.") + 1);
  }
  std::string_view method, service;
};

int64_t MostCalls(const std::map<std::string, int64_t>& limits, std::string_view path) {
  const MethodNames names(path);
  for (const std::string_view name : {path, names.method, names.service, std::string_view()}) {
    const auto found = limits.find(std::string(name));
    if (found != limits.end()) return found->second;
  }
  return 0;
}

class RawService final : public grpc::Service {
 public:
  // `method` must outlive the service: gRPC keeps its name.
  void Add(const Method* method, Serving* serving) {
    AddMethod(new grpc::internal::RpcServiceMethod(method->path.c_str(),
                                                   grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
    MarkMethodRawCallback(
        next_++,
        new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
            [method, serving](grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                              grpc::ByteBuffer* response) -> grpc::ServerUnaryReactor* {
              (void)serving->open.load(std::memory_order_acquire);
              auto* call = new GrpcServerCall(method, serving, context, request, response);
              call->Post();
              return call;
            }));
  }

  // The same for a method whose calls are streams.
  void AddStream(const Method* method, Serving* serving) {
    AddMethod(new grpc::internal::RpcServiceMethod(
        method->path.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
    MarkMethodRawCallback(
        next_++, new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                     [method, serving](grpc::CallbackServerContext* context)
                         -> grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* {
                       (void)serving->open.load(std::memory_order_acquire);
                       return NewRpcStream(method, serving, context);
                     }));
  }

 private:
  int next_ = 0;
};

}  // namespace

struct RpcServer::Impl {
  Serving serving;
  RpcLimits limits;
  std::vector<std::unique_ptr<Method>> methods;
  RawService service;
  HealthService health;
  Mutex mu;  // held through Shutdown: a second caller waits for the first
  std::unique_ptr<grpc::Server> server ABSL_GUARDED_BY(mu);
  grpc::Server* served = nullptr;  // the same one, for the listener's thread
  // With TLS: takes the listener's connections instead.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<Listener> listener ABSL_GUARDED_BY(mu);

  // Counted, if somebody counts.
  const Method* Keep(std::string path, Handler handler, RpcLane lane, bool asks_nobody) {
    RpcTable* const counted = serving.counted_methods;
    MethodStats* const stats = counted == nullptr ? nullptr : counted->Add(path, "grpc");
    auto method = std::make_unique<Method>();
    method->most_calls = MostCalls(limits.max_method_calls, path);
    method->path = std::move(path);
    method->handler = std::move(handler);
    method->lane = lane;
    method->asks_nobody = asks_nobody;
    method->stats = stats;
    methods.push_back(std::move(method));
    return methods.back().get();
  }

  // A bound for what nobody serves is a mistake.
  Status CheckMethodLimits() const {
    for (const auto& [name, most] : limits.max_method_calls) {
      const auto is_meant = [&name = name](const std::unique_ptr<Method>& method) {
        const MethodNames names(method->path);
        return name.empty() || name == method->path || name == names.method ||
               name == names.service;
      };
      if (std::any_of(methods.begin(), methods.end(), is_meant)) continue;
      return errors::InvalidArgument("--max_method_calls: there is no method or service '", name,
                                     "' here; expected one like RunStep or MasterService");
    }
    return OkStatus();
  }

  // On the listener's thread: a connection that has begun as it should.
  void Take(int fd) const {
    if (acceptor == nullptr) return grpc::AddInsecureChannelFromFd(served, fd);
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  }
};

RpcServer::RpcServer(ThreadPool* control, ThreadPool* work, const RpcLimits& limits,
                     PeerTable* peers, std::shared_ptr<const LoadedCredentials> credentials)
    : impl_(std::make_unique<Impl>()) {
  InitGrpc();
  impl_->serving.control = control;
  impl_->serving.work = work == nullptr ? control : work;
  impl_->serving.peers = peers;
  impl_->serving.credentials = std::move(credentials);
  impl_->limits = limits;
}

RpcServer::~RpcServer() { Shutdown(SteadyClock::now()); }

void RpcServer::Observe(RpcTable* methods, PeerTraffic* peers) {
  impl_->serving.counted_methods = methods;
  impl_->serving.counted_peers = peers;
}

void RpcServer::AddMethod(std::string path, Handler handler, RpcLane lane) {
  const bool asks_nobody = path == methods::kWorkerGetStatus;
  impl_->service.Add(impl_->Keep(std::move(path), std::move(handler), lane, asks_nobody),
                     &impl_->serving);
}

void RpcServer::AddStream(std::string path, Handler handler, RpcLane lane) {
  impl_->service.AddStream(impl_->Keep(std::move(path), std::move(handler), lane, false),
                           &impl_->serving);
}

StatusOr<int> RpcServer::Start(const std::string& address) {
  MutexLock lock(&impl_->mu);
  MR_RETURN_IF_ERROR(impl_->CheckMethodLimits());
  const RpcLimits& limits = impl_->limits;
  ListenerOptions listening;
  listening.max_connections = limits.max_connections;
  listening.loopback_only = limits.loopback_only;
  listening.silence_limit = limits.silence_limit;
  const LoadedCredentials* const credentials = impl_->serving.credentials.get();
  listening.tls = credentials != nullptr && credentials->has_tls();
  if (listening.tls) {
    impl_->health.SetUsable([credentials] { return credentials->Usable(); });
    listening.tick = [this] { impl_->health.Look(); };
    listening.tick_interval = credentials->reload_interval();
  }
  // The server lives until the listener has stopped.
  auto listener = std::make_unique<Listener>(listening, [this](int fd) { impl_->Take(fd); });
  const StatusOr<int> port = listener->Open(address);
  if (!port.ok()) {
    return errors::Unavailable("could not start the gRPC server: cannot listen on ", address, ": ",
                               Message(port.status()));
  }
  grpc::ServerBuilder builder;
  builder.RegisterService(&impl_->service);
  // Ours, even where the program has asked for gRPC's.
  builder.SetOption(std::make_unique<grpc::HealthCheckServiceServerBuilderOption>(nullptr));
  for (const auto& method : impl_->methods) {
    impl_->health.AddName(method->path.substr(1, method->path.rfind('/') - 1));
  }
  builder.RegisterService(&impl_->health);
  // gRPC counts them in an int; no limit is -1.
  const int64_t most = std::numeric_limits<int>::max();
  builder.SetMaxReceiveMessageSize(limits.max_message_size <= 0
                                       ? -1
                                       : static_cast<int>(std::min(limits.max_message_size, most)));
  builder.SetMaxSendMessageSize(-1);
  if (limits.max_calls > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_calls);
  }
  if (limits.memory_quota > 0) {
    grpc::ResourceQuota quota("millrace");
    builder.SetResourceQuota(quota.Resize(static_cast<std::size_t>(limits.memory_quota)));
  }
  if (listening.tls) {
    impl_->acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        credentials->ForServer());
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                               static_cast<int>(kHandshakeLimit.count()));
  }
  impl_->serving.open.store(true, std::memory_order_release);
  impl_->server = builder.BuildAndStart();
  if (impl_->server == nullptr) {
    return errors::Unavailable("could not start the gRPC server for ", address);
  }
  impl_->health.SetServing(true);
  impl_->served = impl_->server.get();
  impl_->listener = std::move(listener);
  impl_->listener->Start();
  return port;
}

void RpcServer::Drain() { impl_->health.SetServing(false); }

void RpcServer::Shutdown(Deadline grace) {
  MutexLock lock(&impl_->mu);
  if (impl_->server == nullptr) return;
  impl_->health.End();
  impl_->listener->Stop();
  EndRpcStreams(&impl_->serving);
  std::thread watches([health = &impl_->health, grace] {
    health->CancelWatchers(std::min(grace, DeadlineAfter(kLastAnswerLimit)));
  });
  impl_->server->Shutdown(ToSystemTime(grace));
  watches.join();
  impl_->server->Wait();
  impl_->serving.handlers.WaitForNone();
  impl_->listener = nullptr;
  impl_->acceptor = nullptr;
  impl_->server = nullptr;
}

}  // namespace millrace
