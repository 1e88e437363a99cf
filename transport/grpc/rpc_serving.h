// SPDX-License-Identifier: Apache-2.0
// What the calls of one server share: of rpc_server.cc and rpc_stream.cc alone.
#ifndef TRANSPORT_GRPC_RPC_SERVING_H_
#define TRANSPORT_GRPC_RPC_SERVING_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "base/use_count.h"
#include "millrace/status.h"
#include "observe/peer_traffic.h"
#include "observe/rpc_table.h"
#include "transport/grpc/credentials.h"
#include "transport/grpc/rpc_server.h"
#include "transport/peer_table.h"

namespace millrace {

class RpcStream;  // transport/grpc/rpc_stream.h

struct Method {
  std::string path;
  RpcServer::Handler handler;
  RpcLane lane;
  // Who calls is asked back with GetStatus: that must not ask in turn.
  bool asks_nobody = false;
  MethodStats* stats = nullptr;  // null: nobody counts
  // Calls that may be served at once, all connections together; 0: no bound. With a bound, those
  // that are.
  int64_t most_calls = 0;
  mutable std::atomic<int64_t> calls{0};

  void LeavePlace() const { calls.fetch_sub(1, std::memory_order_relaxed); }
};

struct Serving {
  ThreadPool* control = nullptr;
  ThreadPool* work = nullptr;
  PeerTable* peers = nullptr;
  RpcTable* counted_methods = nullptr;
  PeerTraffic* counted_peers = nullptr;
  std::shared_ptr<const LoadedCredentials> credentials;  // null: everybody may call
  // Set once everything that a call reads is in place. gRPC orders that with its calls, too, but
  // inside a library that a thread sanitizer does not see through.
  std::atomic<bool> open{false};
  // Handlers that have not returned. A call may be answered, and then be over for gRPC and for its
  // caller, while the handler that answered it is still on its way out.
  UseCount handlers;
  Mutex mu;
  bool ending ABSL_GUARDED_BY(mu) = false;  // no stream may begin
  absl::flat_hash_set<RpcStream*> streams ABSL_GUARDED_BY(mu);

  ThreadPool* PoolOf(const Method& method) const {
    return method.lane == RpcLane::kWork ? work : control;
  }
};

// Whether the credentials of the caller, and what they prove, let it call. To be asked before
// anything of the request is looked at.
Status CheckAllowed(const Serving& serving, const grpc::CallbackServerContext& context,
                    const Method& method, ProvenCaller* proven);
// Whether the method has a bound and room for one more call, which then leaves its place at its
// end. To be asked after the above: whoever may not call takes nobody's place.
Status TakePlace(const Serving& serving, const Method& method);
// Who makes a call, for logs: its address, and the name in its certificate, if it has shown one.
std::string WhoCalls(const grpc::CallbackServerContext& context);
// Logs that the rules do not let a call in, and gives its error the name that the line has; but for
// what tasks call each other for, whose errors get the names of their clients' requests.
Status Refusal(const grpc::CallbackServerContext& context, const Method& method, const Status& why);
// What a caller says of itself; false if it says nothing.
bool FindCaller(const grpc::CallbackServerContext& context, PeerIdentity* caller);
// Whether that is what its certificate proves ("": nothing), and meant for this task.
Status CheckClaim(const Serving& serving, const PeerIdentity& caller,
                  const std::string& proven_caller);

}  // namespace millrace

#endif  // TRANSPORT_GRPC_RPC_SERVING_H_
