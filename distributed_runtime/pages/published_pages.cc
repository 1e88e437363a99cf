// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/pages/published_pages.h"

#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "millrace/cluster.h"
#include "observe/page_server.h"

namespace millrace {
namespace {

struct Published {
  Mutex mu;
  StringMap<PublishedPages> by_address ABSL_GUARDED_BY(mu);
};

Published& ThePublished() {
  static auto* const published = new Published;
  return *published;
}

}  // namespace

void PublishPages(std::string address, PublishedPages pages) {
  MutexLock lock(&ThePublished().mu);
  ThePublished().by_address.insert_or_assign(std::move(address), std::move(pages));
}

void WithdrawPages(std::string_view address) {
  MutexLock lock(&ThePublished().mu);
  const auto it = ThePublished().by_address.find(address);
  if (it != ThePublished().by_address.end()) ThePublished().by_address.erase(it);
}

StatusOr<std::unique_ptr<HttpServer>> ServePublishedPages(const std::string& task_address,
                                                          const std::string& address) {
  PublishedPages found;
  {
    MutexLock lock(&ThePublished().mu);
    const auto it = ThePublished().by_address.find(task_address);
    if (it == ThePublished().by_address.end()) {
      return errors::FailedPrecondition("pages: no server of this process runs at ", task_address);
    }
    found = it->second;
  }
  if (found.has_tls && found.is_token == nullptr) {
    return errors::FailedPrecondition(
        "pages: the server at ", task_address,
        " knows its callers by their certificates, and pages over HTTP would be open to every "
        "process of this host: give it a token as well (--token_file), or read the pages over TLS "
        "(millrace page)");
  }
  PageServerOptions options;
  MR_RETURN_IF_ERROR(SplitAddress(address, &options.host, &options.port));
  // The token would be there for every listener to read, where all else is encrypted.
  options.loopback_only = !found.insecure && (found.is_token == nullptr || found.has_tls);
  options.is_token = std::move(found.is_token);
  return ServePages(options, std::move(found.pages));
}

}  // namespace millrace
