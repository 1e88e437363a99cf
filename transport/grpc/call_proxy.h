// SPDX-License-Identifier: Apache-2.0
// Calls of those who know neither certificates nor tokens, passed on in the name of somebody who
// does.
#ifndef TRANSPORT_GRPC_CALL_PROXY_H_
#define TRANSPORT_GRPC_CALL_PROXY_H_

#include <memory>
#include <string>

#include "millrace/status.h"
#include "transport/grpc/credentials.h"

namespace millrace {

struct CallProxyOptions {
  std::string listen;  // "host:port" of loopback; port 0: one that is free
  std::string target;  // "host:port" of a task
  // In whose name calls are made; null: nobody's.
  std::shared_ptr<const LoadedCredentials> credentials;
  int max_connections = 1024;
};

// Takes connections in the clear, on loopback alone, and passes every call on, whatever its method
// and its kind: messages one by one in both directions, deadline, cancellation, metadata, the
// final status with its details. Whoever reaches the port has the rights of the credentials.
// A call that the task cannot be asked is Unavailable at once; PermissionDenied, naming who
// answered, if that is not a task of the credentials' cluster. Thread-safe.
class CallProxy {
 public:
  // Unavailable for an address that is taken, is none, or that others can reach.
  static StatusOr<std::unique_ptr<CallProxy>> Start(const CallProxyOptions& options);
  ~CallProxy();  // cancels the calls that run
  CallProxy(const CallProxy&) = delete;
  CallProxy& operator=(const CallProxy&) = delete;

  // "host:port" to call.
  const std::string& address() const;

 private:
  struct Impl;
  explicit CallProxy(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // TRANSPORT_GRPC_CALL_PROXY_H_
