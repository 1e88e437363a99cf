// SPDX-License-Identifier: Apache-2.0
// /tensorflow.eager.EagerService over the eager server of this process.
#ifndef DISTRIBUTED_RUNTIME_SERVICE_EAGER_SERVICE_H_
#define DISTRIBUTED_RUNTIME_SERVICE_EAGER_SERVICE_H_

#include "eager/eager_server.h"
#include "transport/grpc/rpc_server.h"

namespace millrace {

// `eager` must outlive the server.
void AddEagerMethods(EagerServer* eager, RpcServer* server);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_SERVICE_EAGER_SERVICE_H_
