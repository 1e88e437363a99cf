// SPDX-License-Identifier: Apache-2.0
#include "base/free_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/errors.h"
#include "base/random.h"

namespace millrace {
namespace {

// Sockets that hold their ports until all are chosen.
struct Sockets {
  ~Sockets() {
    for (const int fd : open) close(fd);
  }
  std::vector<int> open;
};

// Servers may listen from here on, below what the system gives to clients' connections.
constexpr int kFirst = 10'000;
constexpr int kFewest = 1'000;  // where there are fewer below it, its own choice is as good

// The first port that a connection to somewhere else may be given; 0 if that is not known.
int FirstOfConnections() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0;
  return file >> first ? first : 0;
}

// The port that the socket is bound to now; 0 if it cannot be had. `port` 0: any.
int Bind(int fd, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof(address);
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  return bound ? ntohs(address.sin_port) : 0;
}

}  // namespace

StatusOr<std::vector<int>> FreeLoopbackPorts(int count) {
  Sockets sockets;
  std::vector<int> ports;
  const int end = FirstOfConnections();
  for (int i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return errors::Unavailable("cannot make a socket: ", std::strerror(errno));
    sockets.open.push_back(fd);
    int port = 0;
    for (int attempt = 0; attempt < 100 && port == 0 && end >= kFirst + kFewest; ++attempt) {
      port = Bind(fd, kFirst + static_cast<int>(RandomId() % static_cast<uint64_t>(end - kFirst)));
    }
    if (port == 0) port = Bind(fd, 0);
    if (port == 0) return errors::Unavailable("no free loopback port: ", std::strerror(errno));
    ports.push_back(port);
  }
  return ports;
}

}  // namespace millrace
