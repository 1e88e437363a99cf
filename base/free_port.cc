// SPDX-License-Identifier: Apache-2.0
#include "base/free_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/errors.h"

namespace millrace {
namespace {

// Sockets that hold their ports until all are chosen.
struct Sockets {
  ~Sockets() {
    for (const int fd : open) close(fd);
  }
  std::vector<int> open;
};

}  // namespace

StatusOr<std::vector<int>> FreeLoopbackPorts(int count) {
  Sockets sockets;
  std::vector<int> ports;
  for (int i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return errors::Unavailable("cannot make a socket: ", std::strerror(errno));
    sockets.open.push_back(fd);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      return errors::Unavailable("no free loopback port: ", std::strerror(errno));
    }
    ports.push_back(ntohs(address.sin_port));
  }
  return ports;
}

}  // namespace millrace
