// SPDX-License-Identifier: Apache-2.0
// Which threads a step runs on: RunOptions.inter_op_thread_pool.
#ifndef SESSION_INTER_OP_POOLS_H_
#define SESSION_INTER_OP_POOLS_H_

#include "millrace/status.h"
#include "session/worker_env.h"

namespace millrace {

// The step stays on the thread that runs it, as far as its nodes let it.
inline constexpr int kCallersThread = -1;

// `asked` threads; of 0 one per core, of a negative number none.
int ThreadsOrCores(int asked);

// InvalidArgument if there is no such pool. A server has one pool, and takes any number for it.
Status CheckInterOpPool(const WorkerEnv& env, int index);

// Null for kCallersThread; the first pool for an index that was not checked.
ThreadPool* InterOpPool(const WorkerEnv& env, int index);

}  // namespace millrace

#endif  // SESSION_INTER_OP_POOLS_H_
