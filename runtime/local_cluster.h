// SPDX-License-Identifier: Apache-2.0
// What a session with target "" runs on: a cluster of one task within this process.
#ifndef RUNTIME_LOCAL_CLUSTER_H_
#define RUNTIME_LOCAL_CLUSTER_H_

#include <memory>
#include <string>

#include "millrace/credentials.h"
#include "millrace/status.h"
#include "proto/config.pb.h"
#include "session/master_interface.h"

namespace millrace {

// The master of a new task /job:localhost/replica:0/task:0 with devices and state of its own.
// Of `config`: device_count["CPU"] (default 1) and those of types that were added (0),
// inter_op_parallelism_threads (0: one per core; negative: everything runs in the caller's thread),
// intra_op_parallelism_threads (0: one per core), and what runtime/session_pools.h says of pools.
// Threads are those of the process: clusters that ask for the same number share them, unless they
// want their own. EngineOptions are those of the environment, as it is now. InvalidArgument for
// numbers that make no sense. The cluster lives as long as the pointer. Its sessions write their
// graphs to `dump_dir`, if it is not "" (master/dump/graph_dump.h); the error of the file system if
// that cannot be made.
StatusOr<std::shared_ptr<MasterInterface>> NewLocalCluster(const pb::ConfigProto& config,
                                                           const std::string& dump_dir = "");

// The master that a session's target names: "" is a new local cluster, "grpc://host:port" a
// server, to which this end shows `credentials` (empty: those of the process). InvalidArgument for
// any other text, for credentials that cannot be used, and for a `dump_dir` with a server: where
// that writes is not for a client to say.
StatusOr<std::shared_ptr<MasterInterface>> ConnectTarget(const std::string& target,
                                                         const pb::ConfigProto& config,
                                                         const std::string& dump_dir = "",
                                                         const Credentials& credentials = {});

}  // namespace millrace

#endif  // RUNTIME_LOCAL_CLUSTER_H_
