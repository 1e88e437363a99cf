// SPDX-License-Identifier: Apache-2.0
// How the tasks of a cluster reach each other.
#ifndef SESSION_WORKER_CACHE_H_
#define SESSION_WORKER_CACHE_H_

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
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
  // "host:port" of a task, for errors; "" where nothing lies between, or if there is no such task.
  virtual std::string Address(std::string_view) const { return ""; }
};

// Workers that are known beforehand; they must outlive the cache.
class FixedWorkerCache : public WorkerCache {
 public:
  // Before the cache is used.
  void Add(std::string task, WorkerInterface* worker) { workers_[std::move(task)] = worker; }

  std::vector<std::string> ListWorkers() const override {
    std::vector<std::string> tasks;
    for (const auto& [task, worker] : workers_) tasks.push_back(task);
    return tasks;
  }
  WorkerInterface* GetWorker(std::string_view task) override {
    const auto it = workers_.find(task);
    return it == workers_.end() ? nullptr : it->second;
  }

 private:
  std::map<std::string, WorkerInterface*, std::less<>> workers_;
};

}  // namespace millrace

#endif  // SESSION_WORKER_CACHE_H_
