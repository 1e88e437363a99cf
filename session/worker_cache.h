// How the tasks of a cluster reach each other.
#ifndef SESSION_WORKER_CACHE_H_
#define SESSION_WORKER_CACHE_H_

#include <string>
#include <string_view>
#include <vector>

#include "session/worker_interface.h"

namespace millrace {

// Thread-safe.
class WorkerCache {
 public:
  virtual ~WorkerCache() = default;
  // "/job:J/replica:R/task:T" of every task of the cluster, this one included, sorted.
  virtual std::vector<std::string> ListWorkers() const = 0;
  // The worker of a task: of this process itself called directly, else a stub. Null if the
  // cluster has no such task. Owned by the cache and valid as long as it is.
  virtual WorkerInterface* GetWorker(std::string_view task) = 0;
};

}  // namespace millrace

#endif  // SESSION_WORKER_CACHE_H_
