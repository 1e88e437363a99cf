// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/peer_host.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/strings.h"

namespace millrace {
namespace {

// One end of a connection: getpeername or getsockname.
using NameEnd = int (*)(int, sockaddr*, socklen_t*);

struct End {
  std::string address;  // "": there is none, or not one of TCP
  bool is_loopback = false;
};

End OfV4(const in_addr& address) {
  char text[INET_ADDRSTRLEN];
  if (inet_ntop(AF_INET, &address, text, sizeof(text)) == nullptr) return {};
  return {text, (ntohl(address.s_addr) >> 24) == 127};
}

End EndOf(NameEnd name, int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (name(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  if (storage.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &storage, sizeof(v4));
    return OfV4(v4.sin_addr);
  }
  if (storage.ss_family != AF_INET6) return {};
  sockaddr_in6 v6{};
  std::memcpy(&v6, &storage, sizeof(v6));
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    in_addr inner{};
    std::memcpy(&inner, &v6.sin6_addr.s6_addr[12], sizeof(inner));
    return OfV4(inner);
  }
  char text[INET6_ADDRSTRLEN];
  if (inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text)) == nullptr) return {};
  return {text, IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0};
}

}  // namespace

CallerHost HostOfPeer(const std::string& peer) {
  constexpr std::string_view kDescriptor = "fd:";
  int64_t number = 0;
  if (!peer.starts_with(kDescriptor) ||
      !ParseInt64(std::string_view(peer).substr(kDescriptor.size()), &number) || number < 0 ||
      number > std::numeric_limits<int>::max()) {
    return {};
  }
  const int fd = static_cast<int>(number);
  const End theirs = EndOf(getpeername, fd);
  if (theirs.address.empty()) return {};
  return {theirs.address, theirs.is_loopback || theirs.address == EndOf(getsockname, fd).address};
}

}  // namespace millrace
