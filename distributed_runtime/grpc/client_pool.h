// The threads on which clients without a server get their answers.
#ifndef DISTRIBUTED_RUNTIME_GRPC_CLIENT_POOL_H_
#define DISTRIBUTED_RUNTIME_GRPC_CLIENT_POOL_H_

#include "base/thread_pool.h"

namespace millrace {

// Of the process, made at the first call, never destroyed.
ThreadPool* ClientPool();

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_GRPC_CLIENT_POOL_H_
