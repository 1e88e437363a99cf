// SPDX-License-Identifier: Apache-2.0
// The master of a server elsewhere, called over gRPC.
#ifndef DISTRIBUTED_RUNTIME_STUB_REMOTE_MASTER_H_
#define DISTRIBUTED_RUNTIME_STUB_REMOTE_MASTER_H_

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "session/master_interface.h"
#include "transport/grpc/credentials.h"

namespace millrace {

// A stub for the master at "host:port". CreateSession keeps trying to connect until its
// deadline (DeadlineExceeded, naming the address); other calls fail with Unavailable if the
// server cannot be reached. Callbacks run on `pool`, which must outlive the stub. Destroying
// it cancels its calls and waits for them. With TLS among the `credentials` (null: none) whoever
// answers must be a task of their cluster.
std::unique_ptr<MasterInterface> NewGrpcRemoteMaster(
    const std::string& address, ThreadPool* pool,
    std::shared_ptr<const LoadedCredentials> credentials = nullptr);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_STUB_REMOTE_MASTER_H_
