// SPDX-License-Identifier: Apache-2.0
#include "observe/page_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
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

// Without the port and the brackets of an IPv6 address, in small letters.
std::string NameIn(std::string_view host) {
  if (host.starts_with('[')) {
    host.remove_prefix(1);
    host = host.substr(0, host.find(']'));
  } else if (std::count(host.begin(), host.end(), ':') == 1) {
    host = host.substr(0, host.find(':'));
  }
  std::string name(host);
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name;
}

bool IsLoopbackName(const std::string& name) {
  in_addr v4;
  in6_addr v6;
  if (inet_pton(AF_INET, name.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  if (inet_pton(AF_INET6, name.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6) != 0;
  return name == "localhost";
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

bool NamesLoopback(std::string_view host, std::string_view listens) {
  const std::string name = NameIn(host);
  return IsLoopbackName(name) || (!name.empty() && name == NameIn(listens));
}

StatusOr<std::unique_ptr<HttpServer>> ServePages(const PageServerOptions& options,
                                                 std::shared_ptr<const PageTable> pages) {
  // Also where others might have been let in (--insecure): those who cannot reach this address must
  // not do so through a browser that can.
  const bool loopback = options.loopback_only || IsLoopbackName(NameIn(options.host));
  const auto handle = [is_token = options.is_token, loopback, host = options.host,
                       pages = std::move(pages)](const HttpRequest& request) {
    PageRequest wanted;
    if (!PageRequest::Parse(request.target, &wanted)) return Refuse(400, "Bad Request\n");
    wanted.accept = request.Header("accept");
    if (loopback && !NamesLoopback(request.Header("host"), host)) {
      return Refuse(403,
                    "these pages are on loopback, and shown to who asks for localhost, 127.0.0.1, "
                    "[::1] or the address that they are served at (the Host header): a page of "
                    "another site may have a name of its own for this address\n");
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
