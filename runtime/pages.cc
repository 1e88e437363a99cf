// SPDX-License-Identifier: Apache-2.0
#include "millrace/pages.h"

#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "distributed_runtime/pages/published_pages.h"

namespace millrace {

struct Pages::Impl {
  std::unique_ptr<HttpServer> http;
  std::string url;
};

Pages::Pages(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pages::~Pages() = default;

StatusOr<std::unique_ptr<Pages>> Pages::Serve(const Server& server, const std::string& address) {
  auto impl = std::make_unique<Impl>();
  MR_ASSIGN_OR_RETURN(impl->http, ServePublishedPages(server.address(), address));
  impl->url = StrCat("http://", address.substr(0, address.rfind(':') + 1), impl->http->port());
  return std::unique_ptr<Pages>(new Pages(std::move(impl)));
}

std::string Pages::url() const { return impl_->url; }

}  // namespace millrace
