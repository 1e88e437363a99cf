// SPDX-License-Identifier: Apache-2.0
#include "transport/grpc/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "transport/grpc/peer_host.h"
#include "transport/grpc/refusal_log.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

// A record of type handshake (22) and major version 3, two more bytes of version and length each,
// and a ClientHello (1).
constexpr std::size_t kTlsGreeting = 6;
constexpr char kTlsOnly[] =
    "this server takes calls over TLS alone: give the caller certificates (--tls_cert, --tls_key, "
    "--tls_ca), or let it in through a `millrace proxy` of its host";
constexpr int kBacklog = 4096;
// After the system had no descriptor, or no memory, for a connection.
constexpr std::chrono::milliseconds kRest{100};

void SetOption(int fd, int level, int option, int value) {
  (void)setsockopt(fd, level, option, &value, sizeof(value));
}

// Half of the time passes before the first question, and five are not answered.
void AskInSilence(int fd, std::chrono::milliseconds limit) {
  if (limit.count() <= 0) return;
  constexpr int64_t kMostSeconds = 32767;  // of a socket
  const int64_t all = std::min(kMostSeconds, (limit.count() + 999) / 1000);
  const int64_t idle = std::max<int64_t>(1, all / 2);
  const int64_t interval = std::max<int64_t>(1, (all - idle) / 5);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(idle));
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(interval));
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT,
            static_cast<int>(std::max<int64_t>(1, (all - idle) / interval)));
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24) == 127;
  }
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

// Whether `bytes` begin a TLS connection, as far as they go.
bool BeginsTls(std::string_view bytes) {
  constexpr struct {
    std::size_t at;
    char value;
  } kFixed[] = {{0, 22}, {1, 3}, {5, 1}};
  return std::all_of(std::begin(kFixed), std::end(kFixed), [bytes](const auto& fixed) {
    return fixed.at >= bytes.size() || bytes[fixed.at] == fixed.value;
  });
}

int OpenSpare() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

Listener::Listener(const ListenerOptions& options, OnConnection on_connection)
    : options_(options), on_connection_(std::move(on_connection)) {}

Listener::~Listener() { Stop(); }

Status Listener::Bind(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), StrCat(port).c_str(), &hints, &list);
  if (error != 0) return errors::Unavailable(gai_strerror(error));
  Status status = errors::Unavailable("the name has no address");
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
      status = errors::Unavailable(std::strerror(errno));
      continue;
    }
    SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (a->ai_family == AF_INET6) {
      // "[::]" means everybody; the addresses of a name come one by one.
      const bool everybody =
          IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(a->ai_addr)->sin6_addr);
      SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, everybody ? 0 : 1);
    }
    if (options_.loopback_only && !IsLoopback(*a->ai_addr)) {
      status = errors::Unavailable("it stands for an address that is not loopback");
      close(fd);
      continue;
    }
    // All addresses have the port that the first one was given.
    sockaddr_storage address{};
    std::memcpy(&address, a->ai_addr, a->ai_addrlen);
    in_port_t* const number = a->ai_family == AF_INET6
                                  ? &reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                  : &reinterpret_cast<sockaddr_in*>(&address)->sin_port;
    if (port_ != 0) *number = htons(static_cast<uint16_t>(port_));
    socklen_t size = a->ai_addrlen;
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(fd, kBacklog) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      status = errors::Unavailable(std::strerror(errno));
      close(fd);
      continue;
    }
    port_ = ntohs(*number);
    listeners_.push_back(fd);
  }
  freeaddrinfo(list);
  return listeners_.empty() ? status : OkStatus();
}

StatusOr<int> Listener::Open(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  int64_t port = 0;
  if (colon == std::string::npos || !ParseInt64(address.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return errors::Unavailable("not of the form host:port");
  }
  std::string host = address.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  MR_RETURN_IF_ERROR(Bind(host, static_cast<int>(port)));
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  spare_ = OpenSpare();
  if (wake_ < 0) {
    Status status = errors::Unavailable(std::strerror(errno));
    Stop();
    return status;
  }
  return port_;
}

void Listener::Start() {
  thread_ = std::thread([this] { Main(); });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    if (write(wake_, &one, sizeof(one)) < 0) MR_LOG(kWarning, "cannot wake the listener");
    thread_.join();
  }
  for (const Waiting& waiting : waiting_) close(waiting.fd);
  waiting_.clear();
  known_.clear();
  for (const int fd : listeners_) close(fd);
  listeners_.clear();
  for (int* fd : {&wake_, &spare_}) {
    if (*fd >= 0) close(std::exchange(*fd, -1));
  }
}

void Listener::Main() {
  pthread_setname_np(pthread_self(), "mr-accept");
  std::vector<pollfd> polled;
  for (;;) {
    const Clock::time_point now = Clock::now();
    // Who has not greeted in time is not waited for.
    std::erase_if(waiting_, [&](const Waiting& waiting) {
      if (waiting.until > now) return false;
      close(waiting.fd);
      return true;
    });
    Clock::time_point next = Clock::time_point::max();
    if (options_.tick != nullptr) {
      if (now >= tick_at_) {
        options_.tick();
        tick_at_ = now + std::chrono::duration_cast<Clock::duration>(options_.tick_interval);
      }
      next = tick_at_;
    }
    polled.clear();
    polled.push_back({wake_, POLLIN, 0});
    const bool rests = rest_until_ > now;
    if (rests) next = std::min(next, rest_until_);
    for (const int fd : listeners_) polled.push_back({rests ? -1 : fd, POLLIN, 0});
    for (const Waiting& waiting : waiting_) {
      polled.push_back({waiting.fd, POLLIN | POLLRDHUP, 0});
      next = std::min(next, waiting.until);
    }
    int timeout = -1;
    if (next != Clock::time_point::max()) {
      timeout = static_cast<int>(
          std::chrono::duration_cast<std::chrono::milliseconds>(next - now).count() + 1);
    }
    if (poll(polled.data(), polled.size(), timeout) < 0 && errno != EINTR) {
      MR_LOG(kError, "the listener cannot wait for connections: ", std::strerror(errno));
      std::this_thread::sleep_for(kRest);
      continue;
    }
    if (polled[0].revents != 0) return;
    const std::size_t first = 1 + listeners_.size();
    for (std::size_t i = first; i < polled.size(); ++i) {
      const short what = polled[i].revents;
      if (what != 0) Look(&waiting_[i - first], (what & (POLLRDHUP | POLLHUP | POLLERR)) != 0);
    }
    std::erase_if(waiting_, [](const Waiting& waiting) { return waiting.fd < 0; });
    for (std::size_t i = 1; i < first; ++i) {
      if (polled[i].fd >= 0 && polled[i].revents != 0) Accept(polled[i].fd);
    }
  }
}

// Hands the connection on, or closes it, if it is known which.
void Listener::Look(Waiting* waiting, bool hung_up) {
  if (waiting->refusal != nullptr) return Refuse(waiting);
  char bytes[kHttp2Preface.size()];
  const ssize_t n = recv(waiting->fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const auto size = static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  const int fd = waiting->fd;
  const bool is_whole = size >= GreetingSize();
  const std::string_view begin(bytes, size);
  const bool is_plain = begin == kHttp2Preface.substr(0, size), is_tls = BeginsTls(begin);
  const bool is_other_kind = size > 0 && (options_.tls ? is_plain : is_tls);
  if (is_other_kind && (is_whole || hung_up)) {
    Refusals().Connection(
        AddressOfSocket(fd),
        options_.tls ? "it came without TLS: give the caller certificates (--tls_cert, "
                       "--tls_key, --tls_ca)"
                     : "it came with TLS, and this server has no certificate (--tls_cert)");
  }
  if (options_.tls && is_plain && is_whole) {
    SetOption(fd, SOL_SOCKET, SO_RCVLOWAT, 1);
    waiting->refusal = std::make_unique<PlainRefusal>(kTlsOnly);
    return Refuse(waiting);
  }
  if (size == 0 || (hung_up && !is_whole) || !(options_.tls ? is_tls : is_plain)) {
    close(std::exchange(waiting->fd, -1));
    return;
  }
  if (!is_whole) return;
  waiting->fd = -1;
  SetOption(fd, SOL_SOCKET, SO_RCVLOWAT, 1);
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  struct stat file{};
  if (fstat(fd, &file) == 0) known_.push_back({fd, file.st_ino});
  if (options_.tls) NoteConnection(AddressOfSocket(fd));
  on_connection_(fd);
}

// Reads what is there, and answers it as far as the connection takes the answer at once.
void Listener::Refuse(Waiting* waiting) {
  char bytes[4096];
  const ssize_t n = recv(waiting->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  std::string answer;
  const bool goes_on =
      n > 0 && waiting->refusal->Take({bytes, static_cast<std::size_t>(n)}, &answer);
  const ssize_t sent =
      answer.empty() ? 0
                     : send(waiting->fd, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (goes_on && sent == static_cast<ssize_t>(answer.size())) return;
  close(std::exchange(waiting->fd, -1));
}

// Bytes that say whether it is a connection of the kind that is served.
std::size_t Listener::GreetingSize() const {
  return options_.tls ? kTlsGreeting : kHttp2Preface.size();
}

// How many of those that were handed on are still open.
int Listener::NumOpen() {
  std::erase_if(known_, [](const Known& known) {
    struct stat file{};
    return fstat(known.fd, &file) != 0 || file.st_ino != known.inode || !S_ISSOCK(file.st_mode);
  });
  return static_cast<int>(known_.size());
}

bool Listener::IsFull() {
  const auto most = static_cast<std::size_t>(std::max(options_.max_connections, 1));
  if (known_.size() + waiting_.size() < most) return false;
  const Clock::time_point now = Clock::now();
  if (now < full_until_) return true;
  if (static_cast<std::size_t>(NumOpen()) + waiting_.size() < most) return false;
  full_until_ = now + kRest;
  return true;
}

void Listener::Accept(int listener) {
  for (;;) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        AcceptAndClose(listener);
        rest_until_ = Clock::now() + kRest;
        return;
      }
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return;  // nobody waits any more
    }
    if (IsFull()) {
      if (!std::exchange(warned_, true)) {
        MR_LOG(kWarning, "refusing connections: there are ", options_.max_connections,
               " already, the most that this server takes");
      }
      close(fd);
      continue;
    }
    AskInSilence(fd, options_.silence_limit);
    SetOption(fd, SOL_SOCKET, SO_RCVLOWAT, static_cast<int>(GreetingSize()));
    waiting_.push_back({fd, Clock::now() + options_.greeting_limit, nullptr});
  }
}

// So that the one who waits first learns that there is no room.
void Listener::AcceptAndClose(int listener) {
  if (spare_ >= 0) close(std::exchange(spare_, -1));
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) close(fd);
  spare_ = OpenSpare();
}

}  // namespace millrace
