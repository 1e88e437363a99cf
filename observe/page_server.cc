// SPDX-License-Identifier: Apache-2.0
#include "observe/page_server.h"

#include <arpa/inet.h>

#include <cstdint>
#include <utility>

#include "absl/strings/escaping.h"

namespace millrace {
namespace {

// "127.0.0.1:80", "[::1]", "localhost:8080": what nobody else can have made of a name of his own.
bool IsOwnName(std::string_view host) {
  if (host.starts_with('[')) return host.find(']') != std::string_view::npos;
  host = host.substr(0, host.find(':'));
  in_addr address;
  return host == "localhost" || inet_pton(AF_INET, std::string(host).c_str(), &address) == 1;
}

HttpAnswer Refuse(int status, std::string body) {
  return {status, {{"Content-Type", kTextType}}, std::move(body)};
}

}  // namespace

bool BringsToken(const HttpRequest& request,
                 const std::function<bool(std::string_view)>& is_token) {
  std::string_view given = request.Header("authorization");
  constexpr std::string_view kBearer = "Bearer ", kBasic = "Basic ";
  if (given.starts_with(kBearer)) return is_token(given.substr(kBearer.size()));
  if (!given.starts_with(kBasic)) return false;
  given.remove_prefix(kBasic.size());
  std::string decoded;
  if (!absl::Base64Unescape({given.data(), given.size()}, &decoded)) return false;
  const std::size_t colon = decoded.find(':');
  return colon != std::string::npos && is_token(std::string_view(decoded).substr(colon + 1));
}

bool AsksForAddress(const HttpRequest& request) { return IsOwnName(request.Header("host")); }

StatusOr<std::unique_ptr<HttpServer>> ServePages(const PageServerOptions& options,
                                                 std::shared_ptr<const PageTable> pages) {
  const auto handle = [is_token = options.is_token, loopback = options.loopback_only,
                       pages = std::move(pages)](const HttpRequest& request) {
    PageRequest wanted;
    if (!PageRequest::Parse(request.target, &wanted)) return Refuse(400, "Bad Request\n");
    wanted.accept = request.Header("accept");
    if (loopback && !AsksForAddress(request)) {
      return Refuse(403, "ask for this page by address, or as localhost\n");
    }
    if (is_token != nullptr && !pages->IsOpen(wanted.path) && !BringsToken(request, is_token)) {
      HttpAnswer refused = Refuse(401, "this task asks for the token of its cluster\n");
      refused.headers.emplace_back("WWW-Authenticate",
                                   "Basic realm=\"millrace\", charset=\"UTF-8\"");
      return refused;
    }
    Page page = pages->Make(wanted);
    // Styles and scripts are in the page itself, and nothing of it leads elsewhere.
    return HttpAnswer{page.status,
                      {{"Content-Type", page.type},
                       {"Cache-Control", "no-store"},
                       {"Content-Security-Policy",
                        "default-src 'none'; style-src 'unsafe-inline'; script-src "
                        "'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
                        "frame-ancestors 'none'"},
                       {"X-Content-Type-Options", "nosniff"},
                       {"X-Frame-Options", "DENY"},
                       {"Referrer-Policy", "no-referrer"}},
                      std::move(page.body)};
  };
  return HttpServer::Start(options.host, options.port, options.loopback_only, options.limits,
                           handle);
}

}  // namespace millrace
