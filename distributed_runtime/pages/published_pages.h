// SPDX-License-Identifier: Apache-2.0
// The pages of the tasks of this process, for those who serve them to browsers.
#ifndef DISTRIBUTED_RUNTIME_PAGES_PUBLISHED_PAGES_H_
#define DISTRIBUTED_RUNTIME_PAGES_PUBLISHED_PAGES_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "millrace/status.h"
#include "observe/http_server.h"
#include "observe/page.h"

namespace millrace {

struct PublishedPages {
  std::shared_ptr<const PageTable> pages;
  bool insecure = false;                             // the task takes anybody's calls
  bool has_tls = false;                              // its callers show certificates
  std::function<bool(std::string_view)> is_token{};  // null: it has no token
};

// By the address that the task listens on. Thread-safe.
void PublishPages(std::string address, PublishedPages pages);
void WithdrawPages(std::string_view address);

// Serves the pages of the task at `task_address`, of this process, on "host:port" `address`, to
// those who may see them: who knows the task's token if it has one; else everybody on this host, or
// with `insecure` everybody. FailedPrecondition if no such task is running, or if it knows its
// callers by certificates alone, of which HTTP knows nothing; PermissionDenied if the address is
// one that others can reach and may not; Unavailable if it is taken.
StatusOr<std::unique_ptr<HttpServer>> ServePublishedPages(const std::string& task_address,
                                                          const std::string& address);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_PAGES_PUBLISHED_PAGES_H_
