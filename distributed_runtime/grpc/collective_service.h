// The part of /tensorflow.WorkerService that collectives need.
#ifndef DISTRIBUTED_RUNTIME_GRPC_COLLECTIVE_SERVICE_H_
#define DISTRIBUTED_RUNTIME_GRPC_COLLECTIVE_SERVICE_H_

#include "collective/peer.h"
#include "distributed_runtime/grpc/rpc_server.h"
#include "distributed_runtime/link/link_hub.h"

namespace millrace {

// CompleteGroup, CompleteInstance, GetStepSequence and RecvBuf; the last also over links, if `hub`
// is not null. `collectives` must outlive the server and the hub; null: all are Unimplemented.
void AddCollectiveMethods(CollectivePeer* collectives, RpcServer* server, LinkHub* hub);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_GRPC_COLLECTIVE_SERVICE_H_
