// SPDX-License-Identifier: Apache-2.0
// Methods by name over raw bytes, unary ones and streams: the half of gRPC that serves.
#ifndef TRANSPORT_GRPC_RPC_SERVER_H_
#define TRANSPORT_GRPC_RPC_SERVER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/notification.h"
#include "base/thread_pool.h"
#include "millrace/status.h"
#include "observe/peer_traffic.h"
#include "observe/rpc_table.h"
#include "transport/grpc/credentials.h"
#include "transport/method_server.h"
#include "transport/peer_table.h"

namespace millrace {

// What callers may take of the server; 0: no bound but gRPC's own.
struct RpcLimits {
  int64_t max_message_size = 0;  // bytes of a request
  int max_connections = 1024;
  int max_calls = 0;  // at once, by one connection
  // At once, all connections together, by what is called: a path, "Method", "Service", or "" for
  // the others, the first that is there; 0: no bound. What is beyond is refused at once, with
  // ResourceExhausted: a flood of one method does not fill the queue that the others wait in.
  std::map<std::string, int64_t> max_method_calls{};
  bool loopback_only = false;
  // Without a sign of life of a caller's machine, until its connection breaks and its calls are
  // cancelled; 0: for ever.
  std::chrono::milliseconds silence_limit{30'000};
  int64_t memory_quota = 0;  // bytes, for requests on their way in, all connections together
};

// Besides its methods it answers gRPC's own health service (grpc.health.v1.Health, with Check and
// Watch), whoever asks: as long as it takes calls it is SERVING, under "" and the services' names,
// unless it drains; from the shutdown on it is not, and those who watch are told at once.
//
// Listens on one address. Methods are added first, then it starts, once, and shuts down.
// gRPC's threads only look at who calls what, and hand calls over: handlers run on the pool of
// their lane, cancellations on that of control. Both must outlive the server; no kernel ever runs
// on the pool of control.
class RpcServer final : public MethodServer {
 public:
  // A task that says who it is is served only what is meant for this one, by one of its own cluster
  // and known to be that task, as `peers` (may be null) says; it must outlive the server.
  // `credentials` (null: everybody) say whose connections are taken and whose calls are served.
  explicit RpcServer(ThreadPool* control, ThreadPool* work = nullptr,
                     const RpcLimits& limits = RpcLimits(), PeerTable* peers = nullptr,
                     std::shared_ptr<const LoadedCredentials> credentials = nullptr);
  // Shuts down with no grace if nobody did.
  ~RpcServer() override;
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // Before the first AddMethod, if somebody counts; both must outlive the server.
  void Observe(RpcTable* methods, PeerTraffic* peers);
  // Unknown methods are answered with Unimplemented.
  void AddMethod(std::string path, Handler handler, RpcLane lane = RpcLane::kControl) override;
  // The same for calls that are streams: each message is handled as a call of its own, after the
  // one before it was answered. An answer that is an error ends the stream; so does Shutdown, at
  // once where no message is being handled. A task that says who it is is not
  // asked back.
  void AddStream(std::string path, Handler handler, RpcLane lane = RpcLane::kControl);
  // Listens on "host:port", port 0 meaning any that is free. Returns the port. The port is not
  // shared: Unavailable, naming it and what the system says, if it is taken. InvalidArgument for a
  // bound of a method that was not added.
  StatusOr<int> Start(const std::string& address);
  // From now on it says that it is not SERVING, and serves on: others may look for another one.
  void Drain();
  // Refuses new calls, gives those that run until `grace`, cancels the rest and waits until
  // all have finished and their handlers have returned: what handlers use may go then. The port
  // is free. Idempotent, not to be called on its pools.
  void Shutdown(Deadline grace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // TRANSPORT_GRPC_RPC_SERVER_H_
