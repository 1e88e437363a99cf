// SPDX-License-Identifier: Apache-2.0
#include "observe/http_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <list>
#include <optional>
#include <thread>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/thread_pool.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNice = 10;
// How long a connection is safe from those that come after it.
constexpr std::chrono::milliseconds kGrace(100);
// For a visitor who is told something before all that he sent was read.
constexpr std::chrono::milliseconds kDrainTime(500);
constexpr std::chrono::milliseconds kRestAfterError(200);
// Answers of up to so many bytes (is it healthy?) do not count for the limit of all.
constexpr std::size_t kSmallAnswer = 64 << 10;

void HaveLessPriority() { setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice); }

std::string_view ReasonOf(int status) {
  static constexpr std::pair<int, std::string_view> kReasons[] = {
      {200, "OK"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {411, "Length Required"},
      {413, "Content Too Large"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
  };
  for (const auto& [known, reason] : kReasons) {
    if (known == status) return reason;
  }
  return "Internal Server Error";
}

std::string Encode(const HttpAnswer& answer, bool with_body) {
  std::string text =
      StrCat("HTTP/1.1 ", answer.status, " ", ReasonOf(answer.status),
             "\r\nContent-Length: ", answer.body.size(), "\r\nConnection: close\r\n");
  for (const auto& [name, value] : answer.headers) StrAppend(&text, name, ": ", value, "\r\n");
  text += "\r\n";
  if (with_body) text += answer.body;
  return text;
}

std::string EncodeError(int status, bool allows_post) {
  HttpAnswer answer{status, {{"Content-Type", "text/plain"}}, ""};
  if (status == 405) {
    answer.headers.emplace_back("Allow", allows_post ? "GET, HEAD, POST" : "GET, HEAD");
  }
  answer.body = StrCat(ReasonOf(status), "\n");
  return Encode(answer, true);
}

std::string EncodeTooMuch(std::size_t limit) {
  return Encode({503,
                 {{"Content-Type", "text/plain"}, {"Retry-After", "5"}},
                 StrCat("answers that others have not read yet take all of the ", limit,
                        " bytes that there are for them: ask again\n")},
                true);
}

// The length of the body that the request announces. The answer's status: 200, or why there can
// be none such.
int BodyLength(const HttpRequest& request, std::size_t most, std::size_t* length) {
  *length = 0;
  if (request.method != "POST") return 200;
  if (most == 0) return 405;
  if (!request.Header("transfer-encoding").empty()) return 501;
  const std::string_view text = request.Header("content-length");
  if (text.empty()) return 411;
  // Whoever stands before this server may have read another one of them.
  if (std::count_if(request.headers.begin(), request.headers.end(),
                    [](const auto& header) { return header.first == "content-length"; }) > 1) {
    return 400;
  }
  for (const char c : text) {
    if (c < '0' || c > '9') return 400;
    *length = *length * 10 + static_cast<std::size_t>(c - '0');
    if (*length > most) return 413;  // before it can overflow
  }
  return 200;
}

bool IsLoopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) != 0;
}

// A socket that listens; -1, and why in errno.
int Listen(const addrinfo& address) {
  const int fd =
      socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol);
  const int on = 1;
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  if (bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, 64) == 0) return fd;
  const int why = errno;
  close(fd);
  errno = why;
  return -1;
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&address)->sin_port
                                            : reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
}

// What a body takes of the room for all of them, as long as it lives.
class Room {
 public:
  Room() = default;
  // `others`, unless null, is how much the others have.
  Room(std::atomic<std::size_t>* taken, std::size_t bytes, std::size_t* others = nullptr)
      : taken_(taken), bytes_(bytes) {
    const std::size_t before = taken_->fetch_add(bytes_);
    if (others != nullptr) *others = before;
  }
  Room(Room&& other) noexcept
      : taken_(std::exchange(other.taken_, nullptr)), bytes_(other.bytes_) {}
  Room& operator=(Room&& other) noexcept {
    std::swap(taken_, other.taken_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Room() {
    if (taken_ != nullptr) taken_->fetch_sub(bytes_);
  }

 private:
  std::atomic<std::size_t>* taken_ = nullptr;
  std::size_t bytes_ = 0;
};

struct Wanted {
  uint64_t id = 0;  // of the connection
  HttpRequest request{};
  Room room{};
};

struct Connection {
  enum class State { kReading, kMaking, kWriting, kDraining };
  int fd = -1;
  uint64_t id = 0;
  State state = State::kReading;
  Clock::time_point since, until;
  std::string in, out;
  // Once the head has been read, while the body is on its way.
  std::optional<HttpRequest> request;
  std::size_t body_bytes = 0;
  Room room;
  std::size_t written = 0;
  Room out_room;
};

struct Made {
  uint64_t id = 0;  // of the connection
  std::string text{};
  Room room{};
};

}  // namespace

struct HttpServer::Impl {
  HttpLimits limits;
  Handler handler;
  int port = 0;
  std::vector<int> listeners;
  int wake = -1;
  std::thread thread;
  std::unique_ptr<ThreadPool> pool;
  std::atomic<std::size_t> bodies{0};   // bytes of those that are not answered
  std::atomic<std::size_t> answers{0};  // bytes of those that are not with their visitors

  // Of the thread.
  std::list<Connection> connections;  // the oldest first
  uint64_t last_id = 0;
  Clock::time_point rest_until;

  std::atomic<bool> stopping{false};
  Mutex mu;
  // Of visitors that are there: no more than connections. Those who leave take theirs along.
  std::list<Wanted> wanted ABSL_GUARDED_BY(mu);
  int makers ABSL_GUARDED_BY(mu) = 0;  // threads of the pool that take from it
  std::vector<Made> made ABSL_GUARDED_BY(mu);

  ~Impl() {
    stopping.store(true);
    Wake();
    if (thread.joinable()) thread.join();
    pool = nullptr;  // waits for the handler
    for (const int fd : listeners) close(fd);
    if (wake >= 0) close(wake);
  }

  void Wake() const {
    const uint64_t one = 1;
    // A counter that is full wakes as well.
    if (wake >= 0) (void)!write(wake, &one, sizeof(one));
  }

  Status Open(const std::string& host, int wanted_port, bool loopback_only) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(host.c_str(), StrCat(wanted_port).c_str(), &hints, &found);
        error != 0) {
      return errors::Unavailable("pages: no address for ", host, ": ", gai_strerror(error));
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
    std::string why = "no address";
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
      if (loopback_only && !IsLoopback(at->ai_addr)) {
        return errors::PermissionDenied(
            "pages: ", host,
            " is not loopback, and whoever reaches it could read what runs here: give the task a "
            "token (--token_file), or ask for it without one (--insecure)");
      }
      // A second address gets the port that the first one was given.
      if (port != 0 && at->ai_family == AF_INET) {
        reinterpret_cast<sockaddr_in*>(at->ai_addr)->sin_port = htons(static_cast<uint16_t>(port));
      } else if (port != 0) {
        reinterpret_cast<sockaddr_in6*>(at->ai_addr)->sin6_port =
            htons(static_cast<uint16_t>(port));
      }
      const int fd = Listen(*at);
      if (fd < 0) {
        why = std::strerror(errno);
        continue;
      }
      listeners.push_back(fd);
      port = PortOf(fd);
    }
    if (!listeners.empty()) return OkStatus();
    return errors::Unavailable("pages: cannot listen on ", host, ":", wanted_port, ": ", why);
  }

  void Main() {
    if (limits.background) HaveLessPriority();
    std::vector<pollfd> waits;
    while (!stopping.load()) {
      const Clock::time_point now = Clock::now();
      TakeAnswers(now);
      CloseLate(now);
      Clock::time_point next = now + std::chrono::seconds(60);
      const bool accepts = now >= rest_until && MayAccept(now, &next);
      if (now < rest_until) next = std::min(next, rest_until);
      waits.assign(1, {wake, POLLIN, 0});
      for (const int fd : listeners) waits.push_back({accepts ? fd : -1, POLLIN, 0});
      for (const Connection& connection : connections) {
        next = std::min(next, connection.until);
        waits.push_back({connection.fd, EventsOf(connection), 0});
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
      if (poll(waits.data(), waits.size(), static_cast<int>(std::max<int64_t>(left, 0))) < 0) {
        continue;
      }
      uint64_t count = 0;
      if (waits[0].revents != 0) (void)!read(wake, &count, sizeof(count));
      auto connection = connections.begin();
      for (std::size_t i = 1 + listeners.size(); i < waits.size(); ++i) {
        const auto current = connection++;
        if (waits[i].revents != 0 && !GoOn(&*current)) Close(current);
      }
      for (std::size_t i = 1; i <= listeners.size(); ++i) {
        if (waits[i].revents != 0) Accept(waits[i].fd);
      }
    }
    for (const Connection& connection : connections) close(connection.fd);
  }

  static short EventsOf(const Connection& connection) {
    switch (connection.state) {
      case Connection::State::kMaking:
        return 0;  // poll tells of a broken connection all the same
      case Connection::State::kWriting:
        return POLLOUT;
      default:
        return POLLIN;
    }
  }

  // Whether there is room, or the oldest visitor that is not being served may be sent away; if
  // not, when it may.
  bool MayAccept(Clock::time_point now, Clock::time_point* next) {
    if (static_cast<int>(connections.size()) < limits.connections) return true;
    const auto oldest = Oldest();
    if (oldest == connections.end()) return false;
    if (oldest->since + kGrace <= now) return true;
    *next = std::min(*next, oldest->since + kGrace);
    return false;
  }

  std::list<Connection>::iterator Oldest() {
    return std::find_if(connections.begin(), connections.end(), [](const Connection& connection) {
      return connection.state != Connection::State::kMaking;
    });
  }

  void Accept(int listener) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    const Clock::time_point now = Clock::now();
    if (fd < 0) {
      // No descriptors, mostly: they are for the engine.
      if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) {
        rest_until = now + kRestAfterError;
      }
      return;
    }
    if (static_cast<int>(connections.size()) >= limits.connections) {
      const auto oldest = Oldest();
      if (oldest == connections.end()) {
        close(fd);
        return;
      }
      Close(oldest);
    }
    Connection& connection = connections.emplace_back();
    connection.fd = fd;
    connection.id = ++last_id;
    connection.since = now;
    connection.until = now + limits.request_time;
  }

  void Close(std::list<Connection>::iterator connection) {
    if (connection->state == Connection::State::kMaking) {
      MutexLock lock(&mu);
      wanted.remove_if([id = connection->id](const Wanted& other) { return other.id == id; });
    }
    close(connection->fd);
    connections.erase(connection);
  }

  void CloseLate(Clock::time_point now) {
    for (auto it = connections.begin(); it != connections.end();) {
      const auto current = it++;
      if (current->until > now) continue;
      if (current->state == Connection::State::kReading && !current->in.empty()) {
        if (Refuse(&*current, 408)) continue;
      }
      Close(current);
    }
  }

  // Does what the connection is ready for. False: it is over.
  bool GoOn(Connection* connection) {
    switch (connection->state) {
      case Connection::State::kReading:
        return Read(connection);
      case Connection::State::kMaking:
        return false;  // the visitor is gone; the answer will find nobody
      case Connection::State::kWriting:
        return Write(connection);
      case Connection::State::kDraining: {
        char buffer[4096];
        const ssize_t n = recv(connection->fd, buffer, sizeof(buffer), 0);
        return n > 0 || (n < 0 && errno == EAGAIN);
      }
    }
    return false;
  }

  bool Refuse(Connection* connection, int status) {
    return Answer(connection, EncodeError(status, limits.body_bytes > 0));
  }

  bool Read(Connection* connection) {
    char buffer[16384];
    const ssize_t n = recv(connection->fd, buffer, sizeof(buffer), 0);
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
    // The end of the head may lie across two reads.
    const std::size_t from = connection->in.size() < 3 ? 0 : connection->in.size() - 3;
    connection->in.append(buffer, static_cast<std::size_t>(n));
    if (!connection->request.has_value()) {
      const std::size_t end = connection->in.find("\r\n\r\n", from);
      if (end == std::string::npos) {
        return connection->in.size() <= limits.request_bytes || Refuse(connection, 431);
      }
      if (end > limits.request_bytes) return Refuse(connection, 431);
      const int status = TakeHead(connection, end);
      if (status != 200) return Refuse(connection, status);
    }
    if (connection->in.size() < connection->body_bytes) return true;
    connection->in.resize(connection->body_bytes);  // one request a connection
    connection->request->body = std::move(connection->in);
    connection->in.clear();
    Enqueue(connection);
    return true;
  }

  // The head ends at `end` of what was read; the body, or its beginning, is what stays.
  int TakeHead(Connection* connection, std::size_t end) {
    HttpRequest request;
    int status = ParseHttpRequest(std::string_view(connection->in).substr(0, end), &request);
    if (status == 200) status = BodyLength(request, limits.body_bytes, &connection->body_bytes);
    if (status != 200) return status;
    // No other thread takes room.
    if (connection->body_bytes > limits.all_body_bytes - bodies.load()) return 503;
    connection->room = Room(&bodies, connection->body_bytes);
    connection->in.erase(0, end + 4);
    if (connection->in.size() < connection->body_bytes &&
        request.Header("expect") == "100-continue") {
      // A visitor that does not get it sends the body a second later all the same.
      constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      (void)!send(connection->fd, kContinue.data(), kContinue.size(), MSG_NOSIGNAL);
    }
    connection->request = std::move(request);
    return 200;
  }

  // Hands the request to the threads that make answers.
  void Enqueue(Connection* connection) {
    connection->state = Connection::State::kMaking;
    connection->until = Clock::now() + limits.answer_time;
    MutexLock lock(&mu);
    wanted.push_back(
        {connection->id, *std::move(connection->request), std::move(connection->room)});
    connection->request.reset();
    if (makers == limits.handler_threads) return;
    ++makers;
    pool->Schedule([this] { MakeAnswers(); });
  }

  // On a thread of the pool, until nobody waits.
  void MakeAnswers() {
    if (limits.background) HaveLessPriority();
    for (;;) {
      Wanted next;
      {
        MutexLock lock(&mu);
        if (wanted.empty() || stopping.load()) {
          --makers;
          return;
        }
        next = std::move(wanted.front());
        wanted.pop_front();
      }
      std::string answer = Encode(handler(next.request), next.request.method != "HEAD");
      Room room;
      if (limits.all_answer_bytes > 0 && answer.size() > kSmallAnswer) {
        std::size_t others = 0;
        room = Room(&answers, answer.size(), &others);
        if (others > 0 && others + answer.size() > limits.all_answer_bytes) {
          answer = EncodeTooMuch(limits.all_answer_bytes);
          room = Room();
        }
      }
      {
        MutexLock lock(&mu);
        made.push_back({next.id, std::move(answer), std::move(room)});
      }
      Wake();
    }
  }

  void TakeAnswers(Clock::time_point now) {
    std::vector<Made> taken;
    {
      MutexLock lock(&mu);
      taken.swap(made);
    }
    for (auto& [id, answer, room] : taken) {
      const auto it = std::find_if(connections.begin(), connections.end(),
                                   [id = id](const Connection& other) { return other.id == id; });
      if (it == connections.end()) continue;
      it->since = now;
      it->out_room = std::move(room);
      if (!Answer(&*it, std::move(answer))) Close(it);
    }
  }

  bool Answer(Connection* connection, std::string text) {
    connection->state = Connection::State::kWriting;
    connection->out = std::move(text);
    connection->until = Clock::now() + limits.answer_time;
    return Write(connection);
  }

  bool Write(Connection* connection) {
    while (connection->written < connection->out.size()) {
      const ssize_t n = send(connection->fd, connection->out.data() + connection->written,
                             connection->out.size() - connection->written, MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      connection->written += static_cast<std::size_t>(n);
    }
    connection->out = std::string();
    connection->written = 0;
    connection->out_room = Room();
    // With something unread, a close would take the answer away from the visitor.
    shutdown(connection->fd, SHUT_WR);
    connection->state = Connection::State::kDraining;
    connection->until = Clock::now() + kDrainTime;
    return true;
  }
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& host, int port,
                                                        bool loopback_only,
                                                        const HttpLimits& limits, Handler handler) {
  auto impl = std::make_unique<Impl>();
  impl->limits = limits;
  impl->handler = std::move(handler);
  MR_RETURN_IF_ERROR(impl->Open(host, port, loopback_only));
  impl->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (impl->wake < 0) return errors::Unavailable("pages: eventfd: ", std::strerror(errno));
  impl->pool = std::make_unique<ThreadPool>("mr-pages", limits.handler_threads);
  impl->thread = std::thread([raw = impl.get()] {
    pthread_setname_np(pthread_self(), "mr-http");
    raw->Main();
  });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

int HttpServer::port() const { return impl_->port; }

}  // namespace millrace
