// SPDX-License-Identifier: Apache-2.0
// The pages of a server for browsers, and its metrics for Prometheus. docs/operating.md
#ifndef MILLRACE_PAGES_H_
#define MILLRACE_PAGES_H_

#include <memory>
#include <string>

#include "millrace/server.h"
#include "millrace/status.h"

namespace millrace {

// Serves /statusz, /stepz, /rpcz, /memz, /graphz, /healthz and /metrics of one server as long as it
// lives. Thread-safe.
class Pages {
 public:
  // On "host:port"; port 0 means one that is free. The server must have been started; the pages say
  // so (503) once it has stopped. Where the server has a token, visitors must know it, but for
  // /healthz. FailedPrecondition if the server is not running, or has certificates and no token:
  // HTTP would show its pages to every process of the host. PermissionDenied for an address that
  // others can reach, unless the server is insecure or has a token and no certificates; Unavailable
  // if it is taken.
  static StatusOr<std::unique_ptr<Pages>> Serve(const Server& server, const std::string& address);
  ~Pages();

  std::string url() const;  // "http://host:port", with the port that was bound

 private:
  struct Impl;
  explicit Pages(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // MILLRACE_PAGES_H_
