// SPDX-License-Identifier: Apache-2.0
#include "observe/visitor_testlib.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "base/strings.h"

namespace millrace::testing {
namespace {

using Clock = std::chrono::steady_clock;

// False if nothing can be read by then.
bool WaitToRead(int fd, Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  pollfd wait{fd, POLLIN, 0};
  return left > 0 && poll(&wait, 1, static_cast<int>(left)) > 0;
}

}  // namespace

Visitor::Visitor(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  timeval limit{10, 0};
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));  // also of connect
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return;
  close(fd_);
  fd_ = -1;
}

Visitor::~Visitor() {
  if (fd_ >= 0) close(fd_);
}

bool Visitor::Send(const std::string& bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += static_cast<std::size_t>(n);
  }
  return true;
}

void Visitor::Reset() {
  const linger at_once{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(fd_);
  fd_ = -1;
}

bool Visitor::WaitForAnswer(std::chrono::milliseconds limit) {
  return WaitToRead(fd_, Clock::now() + limit);
}

std::string Visitor::ReadAll(std::chrono::milliseconds limit) {
  const Clock::time_point until = Clock::now() + limit;
  std::string text;
  char buffer[65536];
  while (WaitToRead(fd_, until)) {
    const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
    if (n <= 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

bool Visitor::WaitForEnd(std::chrono::milliseconds limit) {
  const Clock::time_point until = Clock::now() + limit;
  char buffer[65536];
  while (WaitToRead(fd_, until)) {
    if (recv(fd_, buffer, sizeof(buffer), 0) <= 0) return true;
  }
  return false;
}

Answer ParseAnswer(const std::string& text) {
  Answer answer;
  const std::size_t end = text.find("\r\n\r\n");
  if (!text.starts_with("HTTP/1.1 ") || end == std::string::npos) return answer;
  answer.status = std::atoi(text.c_str() + 9);
  answer.head = text.substr(0, end + 2);
  answer.body = text.substr(end + 4);
  return answer;
}

Answer Get(int port, const std::string& target, const std::string& headers) {
  Visitor visitor(port);
  if (!visitor.connected()) return {};
  const std::string host = headers.find("Host:") == std::string::npos ? "Host: 127.0.0.1\r\n" : "";
  if (!visitor.Send(StrCat("GET ", target, " HTTP/1.1\r\n", host, headers, "\r\n"))) return {};
  return ParseAnswer(visitor.ReadAll());
}

}  // namespace millrace::testing
