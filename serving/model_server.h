// SPDX-License-Identifier: Apache-2.0
// A served model behind addresses: gRPC, and HTTP with JSON.
#ifndef SERVING_MODEL_SERVER_H_
#define SERVING_MODEL_SERVER_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "millrace/credentials.h"
#include "observe/http_server.h"
#include "serving/served_model.h"
#include "transport/grpc/rpc_server.h"

namespace millrace {

struct ModelServerOptions {
  std::string host = "127.0.0.1";
  int grpc_port = 8500;  // 0: any that is free
  // Of the REST interface; 0: any that is free, -1: none.
  int http_port = -1;
  std::size_t max_http_body = 16 << 20;             // bytes of one request
  std::chrono::milliseconds http_deadline{30'000};  // until a request over HTTP is answered
  // Who may call. Without any, only loopback addresses are listened on, unless `insecure`. HTTP is
  // without TLS: with certificates alone it is on loopback only, with a token it asks for that.
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

  // InvalidArgument or PermissionDenied for an address that is not loopback without credentials,
  // Unavailable for a port that is taken.
  Status Start();
  // The port that it listens on, once it has started.
  int grpc_port() const { return grpc_port_; }
  int http_port() const { return http_ == nullptr ? -1 : http_->port(); }
  // Calls over gRPC that run may end within `grace`; those over HTTP are answered 503 at once.
  void Stop(std::chrono::milliseconds grace);

 private:
  Status StartHttp(std::shared_ptr<const LoadedCredentials> credentials);
  HttpAnswer AnswerHttp(const LoadedCredentials* credentials, const HttpRequest& request) const;

  ServedModel* const model_;
  const ModelServerOptions options_;
  ThreadPool control_, work_;
  std::unique_ptr<RpcServer> grpc_;
  std::atomic<bool> stopping_{false};
  std::unique_ptr<HttpServer> http_;
  int grpc_port_ = 0;
};

}  // namespace millrace

#endif  // SERVING_MODEL_SERVER_H_
