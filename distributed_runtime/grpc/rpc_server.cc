#include "distributed_runtime/grpc/rpc_server.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "base/use_count.h"
#include "distributed_runtime/grpc/grpc_util.h"

namespace millrace {
namespace {

// What the calls of one server share.
struct Serving {
  ThreadPool* pool = nullptr;
  // Set once everything that a call reads is in place. gRPC orders that with its calls, too, but
  // inside a library that a thread sanitizer does not see through.
  std::atomic<bool> open{false};
  // Handlers that have not returned. A call may be answered, and then be over for gRPC and for its
  // caller, while the handler that answered it is still on its way out.
  UseCount handlers;
};

// A call in the form gRPC wants. It lives until gRPC is done with it and no cancellation of it
// runs any more.
class GrpcServerCall final : public ServerCall, public grpc::ServerUnaryReactor {
 public:
  GrpcServerCall(const RpcServer::Handler* handler, Serving* serving,
                 grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                 grpc::ByteBuffer* response)
      : handler_(handler),
        serving_(serving),
        context_(context),
        request_(request),
        response_(response),
        deadline_(FromSystemTime(context->deadline())) {}

  void Post() {
    references_.store(1, std::memory_order_release);  // for OnCancel, on another of gRPC's threads
    serving_->handlers.Enter();
    serving_->pool->Schedule(ThreadPool::Task{[](void* arg) {
                                                auto* call = static_cast<GrpcServerCall*>(arg);
                                                Serving* const serving = call->serving_;
                                                (*call->handler_)(call);  // the call may be gone
                                                serving->handlers.Leave();
                                              },
                                              this});
  }

  std::span<const WirePiece> request() override {
    if (!received_) received_.emplace(*request_);
    return received_->pieces();
  }
  CallOptions options() override { return {deadline_, &cancellation_}; }

  void Finish(const Status& status) override {
    if (status.ok()) *response_ = ToByteBuffer(WireWriter());
    FinishWith(ToGrpcStatus(status));
  }
  void Finish(WireWriter response) override {
    *response_ = ToByteBuffer(response);
    FinishWith(grpc::Status::OK);
  }

 private:
  // The call may be gone afterwards. Whoever frees it does so after all that was done to it until
  // here: gRPC's OnDone comes later, but only gRPC knows (see Serving::open).
  void FinishWith(const grpc::Status& status) {
    references_.fetch_add(0, std::memory_order_release);
    grpc::ServerUnaryReactor::Finish(status);
  }
  // Cancelling runs callbacks of the engine: not on this thread.
  void OnCancel() override {
    references_.fetch_add(1, std::memory_order_acquire);
    serving_->handlers.Enter();
    serving_->pool->Schedule(ThreadPool::Task{[](void* arg) {
                                                auto* call = static_cast<GrpcServerCall*>(arg);
                                                Serving* const serving = call->serving_;
                                                call->cancellation_.StartCancel(errors::Cancelled(
                                                    "the caller cancelled the call or went away"));
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

  const RpcServer::Handler* const handler_;
  Serving* const serving_;
  grpc::CallbackServerContext* const context_;
  const grpc::ByteBuffer* const request_;
  std::optional<ReceivedBytes> received_;  // the request, once it was looked at
  grpc::ByteBuffer* const response_;
  const Deadline deadline_;
  CancellationManager cancellation_;
  std::atomic<int> references_{0};
};

struct Method {
  std::string path;
  RpcServer::Handler handler;
};

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
              auto* call =
                  new GrpcServerCall(&method->handler, serving, context, request, response);
              call->Post();
              return call;
            }));
  }

 private:
  int next_ = 0;
};

// gRPC does not say why it could not listen; the system does.
std::string WhyNotListening(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &list);
  if (error != 0) return gai_strerror(error);
  std::string why = "the library refused it";
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) continue;
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, 1) != 0) why = std::strerror(errno);
    close(fd);
  }
  freeaddrinfo(list);
  return why;
}

}  // namespace

struct RpcServer::Impl {
  Serving serving;
  std::vector<std::unique_ptr<Method>> methods;
  RawService service;
  Mutex mu;  // held through Shutdown: a second caller waits for the first
  std::unique_ptr<grpc::Server> server ABSL_GUARDED_BY(mu);
};

RpcServer::RpcServer(ThreadPool* pool) : impl_(std::make_unique<Impl>()) {
  InitGrpc();
  impl_->serving.pool = pool;
}

RpcServer::~RpcServer() { Shutdown(SteadyClock::now()); }

void RpcServer::AddMethod(std::string path, Handler handler) {
  impl_->methods.push_back(std::make_unique<Method>(Method{std::move(path), std::move(handler)}));
  impl_->service.Add(impl_->methods.back().get(), &impl_->serving);
}

StatusOr<int> RpcServer::Start(const std::string& address) {
  MutexLock lock(&impl_->mu);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&impl_->service);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  impl_->serving.open.store(true, std::memory_order_release);
  impl_->server = builder.BuildAndStart();
  if (impl_->server == nullptr || port == 0) {
    impl_->server = nullptr;
    return errors::Unavailable("could not start the gRPC server: cannot listen on ", address, ": ",
                               WhyNotListening(address));
  }
  return port;
}

void RpcServer::Shutdown(Deadline grace) {
  MutexLock lock(&impl_->mu);
  if (impl_->server == nullptr) return;
  impl_->server->Shutdown(ToSystemTime(grace));
  impl_->server->Wait();
  impl_->serving.handlers.WaitForNone();
  impl_->server = nullptr;
}

}  // namespace millrace
