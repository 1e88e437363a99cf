// A served model behind addresses: gRPC, and HTTP with JSON.
#ifndef SERVING_MODEL_SERVER_H_
#define SERVING_MODEL_SERVER_H_

#include <chrono>
#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "millrace/credentials.h"
#include "serving/served_model.h"
#include "transport/grpc/rpc_server.h"

namespace millrace {

struct ModelServerOptions {
  std::string host = "127.0.0.1";
  int grpc_port = 8500;  // 0: any that is free
  // Whom gRPC takes calls of. Without any, only loopback addresses are listened on, unless
  // `insecure`.
  Credentials credentials{};
  bool insecure = false;
};

// Answers until it is stopped. Start and Stop once, on one thread.
class ModelServer {
 public:
  // `model` must outlive the server.
  ModelServer(ServedModel* model, const ModelServerOptions& options);
  ~ModelServer();  // stops, without grace
  ModelServer(const ModelServer&) = delete;
  ModelServer& operator=(const ModelServer&) = delete;

  // InvalidArgument for an address that is not loopback without credentials, Unavailable for a
  // port that is taken.
  Status Start();
  // The port that it listens on, once it has started.
  int grpc_port() const { return grpc_port_; }
  // Calls that run may end within `grace`.
  void Stop(std::chrono::milliseconds grace);

 private:
  ServedModel* const model_;
  const ModelServerOptions options_;
  ThreadPool control_, work_;
  std::unique_ptr<RpcServer> grpc_;
  int grpc_port_ = 0;
};

}  // namespace millrace

#endif  // SERVING_MODEL_SERVER_H_
