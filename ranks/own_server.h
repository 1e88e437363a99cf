// SPDX-License-Identifier: Apache-2.0
// The server of this process' own task.
#ifndef RANKS_OWN_SERVER_H_
#define RANKS_OWN_SERVER_H_

#include <memory>
#include <string>

#include "millrace/cluster_resolver.h"
#include "millrace/server.h"

namespace millrace {

// Ends a server after what others still ask it for: a rank that has left the last exchange may hold
// what the next one has not got yet. Waits for a second at most.
struct StopsGently {
  void operator()(Server* server) const;
};

// Where sessions are opened, and what has to live as long as they do.
struct SessionTarget {
  std::string target;
  std::unique_ptr<Server, StopsGently> server;  // null if it is somebody else's
};

// The given target, or where it is "" a server for `task` with so many CPU devices, which is
// started. `server` has what else it is made with: its cluster, task and devices are not looked at,
// and an empty cluster_id is that of MILLRACE_CLUSTER_ID.
StatusOr<SessionTarget> TargetFor(const std::string& target, const ResolvedTask& task,
                                  int cpu_devices, ServerOptions server);

}  // namespace millrace

#endif  // RANKS_OWN_SERVER_H_
