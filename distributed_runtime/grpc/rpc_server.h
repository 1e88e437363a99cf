// Unary methods by name over raw bytes: the half of gRPC that serves.
#ifndef DISTRIBUTED_RUNTIME_GRPC_RPC_SERVER_H_
#define DISTRIBUTED_RUNTIME_GRPC_RPC_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/notification.h"
#include "base/thread_pool.h"
#include "distributed_runtime/server_call.h"
#include "millrace/status.h"

namespace millrace {

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
  // all have finished and their handlers have returned: what handlers use may go then. The port
  // is free. Idempotent, not to be called on `pool`.
  void Shutdown(Deadline grace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_GRPC_RPC_SERVER_H_
