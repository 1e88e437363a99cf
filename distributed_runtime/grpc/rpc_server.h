// Unary methods by name over raw bytes: the half of gRPC that serves.
#ifndef DISTRIBUTED_RUNTIME_GRPC_RPC_SERVER_H_
#define DISTRIBUTED_RUNTIME_GRPC_RPC_SERVER_H_

#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/cancellation.h"
#include "base/thread_pool.h"
#include "distributed_runtime/grpc/grpc_util.h"
#include "distributed_runtime/wire_writer.h"
#include "google/protobuf/message_lite.h"
#include "millrace/status.h"
#include "session/worker_interface.h"

namespace millrace {

// One call that is being served. Its owner is the server; it is gone once a Finish was called.
class ServerCall {
 public:
  // The request's bytes.
  virtual const grpc::ByteBuffer& request() const = 0;
  // The caller's deadline, and its cancellation (also when the caller went away).
  virtual CallOptions options() = 0;
  // Each call ends by exactly one of these, on any thread.
  virtual void Finish(const Status& status) = 0;  // an error; OK sends an empty message
  virtual void Finish(const google::protobuf::MessageLite& response) = 0;
  virtual void Finish(const WireWriter& response) = 0;

 protected:
  virtual ~ServerCall() = default;
};

// Listens on one address. Methods are added first, then it starts, once, and shuts down.
// gRPC's threads only hand calls over: handlers run on `pool`, which must outlive the server.
class RpcServer {
 public:
  using Handler = std::function<void(ServerCall* call)>;

  explicit RpcServer(ThreadPool* pool);
  // Shuts down with no grace if nobody did.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // `path` is "/package.Service/Method". Unknown methods are answered with Unimplemented.
  void AddMethod(std::string path, Handler handler);
  // Listens on "host:port", port 0 meaning any that is free. Returns the port. The port is not
  // shared: Unavailable, naming it and what the system says, if it is taken.
  StatusOr<int> Start(const std::string& address);
  // Refuses new calls, gives those that run until `grace`, cancels the rest and waits until
  // all have finished. The port is free then. Idempotent, not to be called on `pool`.
  void Shutdown(Deadline grace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_GRPC_RPC_SERVER_H_
