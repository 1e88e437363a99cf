// SPDX-License-Identifier: Apache-2.0
// A small HTTP server: one request a connection; GET and HEAD, and POST where bodies are allowed.
//
// cpp-httplib gives every visitor a thread and queues all others without a bound, each with an open
// descriptor of the task; it cannot be told to turn anybody away. Here visitors wait in poll(), and
// the number of all that they can take is fixed.
#ifndef OBSERVE_HTTP_SERVER_H_
#define OBSERVE_HTTP_SERVER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/status.h"

namespace millrace {

struct HttpRequest {
  std::string method;                                          // "GET", "HEAD" or "POST"
  std::string target;                                          // "/statusz?x=1", as it was sent
  std::vector<std::pair<std::string, std::string>> headers{};  // names in lower case
  std::string body{};                                          // of POST

  // The value of the first such header; "" if there is none.
  std::string_view Header(std::string_view lower_case_name) const;
};

struct HttpAnswer {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers{};
  std::string body;
};

// Reads what comes before the body. The answer's status: 200, or why it is no request of ours (400,
// 405, 505).
int ParseHttpRequest(std::string_view head, HttpRequest* request);

struct HttpLimits {
  int connections = 64;  // at once; then the one that has been slow for longest makes room
  std::size_t request_bytes = 8192;  // without the body
  std::size_t body_bytes = 0;        // of a POST; 0: POST is refused (405)
  // Of all bodies, from their announcement until they are answered; beyond it POST is answered 503.
  std::size_t all_body_bytes = 0;
  // Of all answers that were made and are not with their visitors yet; one of more than 64 kB
  // beyond it becomes 503, but for one that is alone. 0: no limit.
  std::size_t all_answer_bytes = 0;
  std::chrono::milliseconds request_time{5000};   // until the request is there
  std::chrono::milliseconds answer_time{30'000};  // until the answer is with the visitor
  int handler_threads = 2;                        // answers that are made at once
  bool background = true;  // threads have less priority than those of the engine
};

class HttpServer {
 public:
  // Called on one of `handler_threads` threads. It may take its time, and others wait behind it.
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;

  // Listens on all addresses of the host; port 0: any that is free. Unavailable, with the address
  // and what the system says, if it cannot. PermissionDenied if `loopback_only` and the host
  // stands for an address that others can reach.
  static StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& host, int port,
                                                     bool loopback_only, const HttpLimits& limits,
                                                     Handler handler);
  // Closes all connections and waits for the handler.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // OBSERVE_HTTP_SERVER_H_
