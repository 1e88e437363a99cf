// SPDX-License-Identifier: Apache-2.0
// The threads of sessions in this process.
#ifndef RUNTIME_SESSION_POOLS_H_
#define RUNTIME_SESSION_POOLS_H_

#include <vector>

#include "base/thread_pool.h"
#include "millrace/status.h"
#include "proto/config.pb.h"

namespace millrace {

// The pool of that name and so many threads that everybody shares. Never destroyed, as none of
// the pools here: a late callback finds its threads.
ThreadPool* SharedPool(const char* name, int threads);

// The inter-op pools of one session, in the order in which RunOptions.inter_op_thread_pool counts
// them. Of `config`: session_inter_op_thread_pool (a pool with a global_name is shared with every
// session that names it, one without is the session's own), else use_per_session_threads (one pool
// of its own), else the process's pool of inter_op_parallelism_threads.
class SessionPools {
 public:
  // InvalidArgument for a number of threads that makes no sense, and for a global_name that has
  // another number of threads already.
  static StatusOr<SessionPools> Make(const pb::ConfigProto& config);
  SessionPools() = default;
  SessionPools(SessionPools&& other) noexcept = default;
  SessionPools& operator=(SessionPools&& other) noexcept = default;
  // Its own pools wait for the next session that wants as many threads.
  ~SessionPools();

  const std::vector<ThreadPool*>& pools() const { return pools_; }

 private:
  std::vector<ThreadPool*> pools_, own_;
};

}  // namespace millrace

#endif  // RUNTIME_SESSION_POOLS_H_
