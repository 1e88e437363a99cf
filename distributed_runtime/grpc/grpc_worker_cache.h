// The workers of a cluster: this task's own, and stubs for the others.
#ifndef DISTRIBUTED_RUNTIME_GRPC_GRPC_WORKER_CACHE_H_
#define DISTRIBUTED_RUNTIME_GRPC_GRPC_WORKER_CACHE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/string_map.h"
#include "base/thread_pool.h"
#include "distributed_runtime/link/link_hub.h"
#include "session/worker_cache.h"

namespace millrace {

// A stub, and its connection, is made when it is first asked for.
class GrpcWorkerCache : public WorkerCache {
 public:
  // `addresses`: task name -> "host:port", the own task included. Callbacks of stubs run on
  // `pool`, those that begin nothing on `control`, or on a thread of `links` (may be null); all
  // must outlive the cache.
  GrpcWorkerCache(std::map<std::string, std::string> addresses, std::string own_task,
                  ThreadPool* pool, ThreadPool* control, LinkHub* links = nullptr);
  ~GrpcWorkerCache() override;

  // Before the first GetWorker; the worker must outlive the cache's use.
  void SetOwnWorker(WorkerInterface* worker) { own_worker_ = worker; }

  std::vector<std::string> ListWorkers() const override;
  WorkerInterface* GetWorker(std::string_view task) override;

 private:
  const std::map<std::string, std::string> addresses_;
  const std::string own_task_;
  ThreadPool* const pool_;
  ThreadPool* const control_;
  LinkHub* const links_;
  WorkerInterface* own_worker_ = nullptr;
  Mutex mu_;
  StringMap<std::unique_ptr<WorkerInterface>> stubs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_GRPC_GRPC_WORKER_CACHE_H_
