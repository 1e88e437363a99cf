// SPDX-License-Identifier: Apache-2.0
#include "session/inter_op_pools.h"

#include <algorithm>
#include <thread>

#include "base/errors.h"

namespace millrace {

int ThreadsOrCores(int asked) {
  if (asked == 0) return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::max(asked, 0);
}

Status CheckInterOpPool(const WorkerEnv& env, int index) {
  const int count = static_cast<int>(env.inter_op_pools.size());
  if (count == 0 || (index >= kCallersThread && index < count)) return OkStatus();
  return errors::InvalidArgument("Invalid inter_op_thread_pool: ", index, "; ", env.task, " has ",
                                 count, " (from 0 on; -1 is the caller's thread)");
}

ThreadPool* InterOpPool(const WorkerEnv& env, int index) {
  if (index == kCallersThread) return nullptr;
  const bool known = index >= 0 && index < static_cast<int>(env.inter_op_pools.size());
  return known ? env.inter_op_pools[index] : env.inter_op_pool;
}

}  // namespace millrace
