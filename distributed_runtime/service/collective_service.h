// SPDX-License-Identifier: Apache-2.0
// The part of /tensorflow.WorkerService that collectives need.
#ifndef DISTRIBUTED_RUNTIME_SERVICE_COLLECTIVE_SERVICE_H_
#define DISTRIBUTED_RUNTIME_SERVICE_COLLECTIVE_SERVICE_H_

#include "collective/peer.h"
#include "transport/method_server.h"

namespace millrace {

// CompleteGroup, CompleteInstance, GetStepSequence and RecvBuf. `collectives` must outlive the
// server; null: all are Unimplemented.
void AddCollectiveMethods(CollectivePeer* collectives, MethodServer* server);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_SERVICE_COLLECTIVE_SERVICE_H_
