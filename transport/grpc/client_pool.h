// SPDX-License-Identifier: Apache-2.0
// The threads on which clients without a server get their answers.
#ifndef TRANSPORT_GRPC_CLIENT_POOL_H_
#define TRANSPORT_GRPC_CLIENT_POOL_H_

#include "base/thread_pool.h"

namespace millrace {

// Of the process, made at the first call, never destroyed.
ThreadPool* ClientPool();

}  // namespace millrace

#endif  // TRANSPORT_GRPC_CLIENT_POOL_H_
