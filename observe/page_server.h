// SPDX-License-Identifier: Apache-2.0
// The pages of a task over HTTP: who may see them, and how browsers are told to treat them.
#ifndef OBSERVE_PAGE_SERVER_H_
#define OBSERVE_PAGE_SERVER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "millrace/status.h"
#include "observe/http_server.h"
#include "observe/page.h"

namespace millrace {

// Of pages on their way: slow readers of a large page would each hold a copy of it.
inline constexpr std::size_t kMostPageBytes = 16 << 20;

struct PageServerOptions {
  std::string host;  // where to listen
  int port = 0;      // 0: any that is free
  bool loopback_only = true;
  // Whether this is what a visitor has to know, as the password of Basic or as the token of Bearer
  // authorization; null: nothing. Pages that are open are shown to all.
  std::function<bool(std::string_view)> is_token{};
  HttpLimits limits{.all_answer_bytes = kMostPageBytes};
};

// Whether the request brings a token that `is_token` takes, as the password of Basic or as the
// token of Bearer authorization.
bool BringsToken(const HttpRequest& request, const std::function<bool(std::string_view)>& is_token);

// Whether the Host header is an address or "localhost", which no name that others have made stand
// for this host is.
bool AsksForAddress(const HttpRequest& request);

// Whether `host`, a Host header with or without a port, is "localhost", an address of loopback or
// `listens`, however it is written. `listens` is not what it is about if it stands for all
// addresses.
bool NamesLoopback(std::string_view host, std::string_view listens);

// As HttpServer::Start. `pages` may be closed before the server ends.
//
// On loopback a visitor must ask for an address of loopback, "localhost" or `options.host`,
// whatever else is asked of him: a page of another site, whose name was made to stand for this
// host, cannot read these.
StatusOr<std::unique_ptr<HttpServer>> ServePages(const PageServerOptions& options,
                                                 std::shared_ptr<const PageTable> pages);

}  // namespace millrace

#endif  // OBSERVE_PAGE_SERVER_H_
