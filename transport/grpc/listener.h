// SPDX-License-Identifier: Apache-2.0
// Takes connections over TCP, and keeps those who never say anything, or come in crowds, from
// taking all the descriptors of the process.
//
// gRPC's own acceptor stops for good once accept() has failed for want of descriptors.
#ifndef TRANSPORT_GRPC_LISTENER_H_
#define TRANSPORT_GRPC_LISTENER_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "millrace/status.h"
#include "transport/grpc/plain_refusal.h"

namespace millrace {

struct ListenerOptions {
  // At once, those that were handed on and are still open included; more are closed as they come.
  int max_connections = 1024;
  // How long a connection has to send the 24 bytes that HTTP/2 begins with, or the first 6 of TLS.
  std::chrono::milliseconds greeting_limit{5000};
  // After how long without a sign of life of its machine a connection breaks, also one on which
  // nothing is said: the system asks the other's system, which answers for a process that is
  // stopped, too. In whole seconds, two at least; 0: never.
  std::chrono::milliseconds silence_limit{30'000};
  // Whether connections begin with a TLS handshake, not with HTTP/2. Who begins with HTTP/2 then is
  // told, by every call until greeting_limit, what was expected.
  bool tls = false;
  // Whether a name that stands for an address which others can reach is refused.
  bool loopback_only = false;
  // Called on the listener's thread after each `tick_interval`; null: nothing is.
  std::function<void()> tick{};
  std::chrono::nanoseconds tick_interval{std::chrono::seconds(10)};
};

// Start and Stop by one thread.
class Listener {
 public:
  // Gets a connected socket that does not block, and owns it. Called on the listener's thread; it
  // must not wait.
  using OnConnection = std::function<void(int fd)>;

  Listener(const ListenerOptions& options, OnConnection on_connection);
  ~Listener();  // stops
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Listens on every address of "host:port"; port 0 means one that is free. Returns the port, which
  // is not shared. Unavailable, with what the system says, if there is no address to listen on.
  StatusOr<int> Open(const std::string& address);
  // Begins to take connections.
  void Start();
  // Takes no more, closes those that have not greeted, and frees the port.
  void Stop();

 private:
  struct Waiting {
    int fd = -1;
    std::chrono::steady_clock::time_point until;
    std::unique_ptr<PlainRefusal> refusal;  // null: nobody knows yet
  };
  // One that was handed on: it is open as long as the descriptor is that of this socket.
  struct Known {
    int fd = -1;
    ino_t inode = 0;
  };

  Status Bind(const std::string& host, int port);
  void Main();
  void Accept(int listener);
  void AcceptAndClose(int listener);
  void Look(Waiting* waiting, bool hung_up);
  static void Refuse(Waiting* waiting);
  std::size_t GreetingSize() const;
  int NumOpen();
  bool IsFull();

  const ListenerOptions options_;
  const OnConnection on_connection_;
  std::vector<int> listeners_;
  int wake_ = -1;
  int spare_ = -1;  // given up to take, and close, a connection when there are no descriptors
  int port_ = 0;
  std::thread thread_;
  // Of the thread.
  std::vector<Waiting> waiting_;
  std::vector<Known> known_;
  std::chrono::steady_clock::time_point rest_until_;  // no accept before
  std::chrono::steady_clock::time_point full_until_;  // it is not counted before
  std::chrono::steady_clock::time_point tick_at_;
  bool warned_ = false;
};

}  // namespace millrace

#endif  // TRANSPORT_GRPC_LISTENER_H_
