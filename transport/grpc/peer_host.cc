// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/peer_host.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "base/strings.h"

namespace millrace {
namespace {

// One end of a connection: getpeername or getsockname.
using NameEnd = int (*)(int, sockaddr*, socklen_t*);

struct End {
  std::string address;  // "": there is none, or not one of TCP
  bool is_loopback = false;
  int port = 0;
};

End OfV4(const in_addr& address, in_port_t port) {
  char text[INET_ADDRSTRLEN];
  if (inet_ntop(AF_INET, &address, text, sizeof(text)) == nullptr) return {};
  return {text, (ntohl(address.s_addr) >> 24) == 127, ntohs(port)};
}

End EndOf(NameEnd name, int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (name(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  if (storage.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &storage, sizeof(v4));
    return OfV4(v4.sin_addr, v4.sin_port);
  }
  if (storage.ss_family != AF_INET6) return {};
  sockaddr_in6 v6{};
  std::memcpy(&v6, &storage, sizeof(v6));
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    in_addr inner{};
    std::memcpy(&inner, &v6.sin6_addr.s6_addr[12], sizeof(inner));
    return OfV4(inner, v6.sin6_port);
  }
  char text[INET6_ADDRSTRLEN];
  if (inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text)) == nullptr) return {};
  return {text, IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0, ntohs(v6.sin6_port)};
}

// Of "fd:N"; -1 if it is not that.
int DescriptorOf(std::string_view peer) {
  constexpr std::string_view kDescriptor = "fd:";
  int64_t number = 0;
  if (!peer.starts_with(kDescriptor) || !ParseInt64(peer.substr(kDescriptor.size()), &number) ||
      number < 0 || number > std::numeric_limits<int>::max()) {
    return -1;
  }
  return static_cast<int>(number);
}

}  // namespace

CallerHost HostOfPeer(const std::string& peer) {
  const int fd = DescriptorOf(peer);
  if (fd < 0) return {};
  const End theirs = EndOf(getpeername, fd);
  if (theirs.address.empty()) return {};
  return {theirs.address, theirs.is_loopback || theirs.address == EndOf(getsockname, fd).address};
}

std::string AddressOfSocket(int fd) {
  const End theirs = EndOf(getpeername, fd);
  if (theirs.address.empty()) return "?";
  const bool is_v6 = theirs.address.find(':') != std::string::npos;
  return StrCat(is_v6 ? "[" : "", theirs.address, is_v6 ? "]:" : ":", theirs.port);
}

std::string AddressOfPeer(const std::string& peer) {
  if (const int fd = DescriptorOf(peer); fd >= 0) return AddressOfSocket(fd);
  // "ipv4:10.0.0.1:2222", "ipv6:%5B::1%5D:2222".
  std::string text = peer;
  if (text.starts_with("ipv4:") || text.starts_with("ipv6:")) text.erase(0, 5);
  for (const auto& [escape, character] : {std::pair("%5B", '['), std::pair("%5D", ']')}) {
    if (const std::size_t at = text.find(escape); at != std::string::npos) {
      text.replace(at, 3, 1, character);
    }
  }
  return text;
}

}  // namespace millrace
