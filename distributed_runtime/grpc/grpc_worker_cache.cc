#include "distributed_runtime/grpc/grpc_worker_cache.h"

#include <utility>

#include "distributed_runtime/grpc/remote_worker.h"

namespace millrace {

GrpcWorkerCache::GrpcWorkerCache(std::map<std::string, std::string> addresses, std::string own_task,
                                 ThreadPool* pool, ThreadPool* control, LinkHub* links)
    : addresses_(std::move(addresses)),
      own_task_(std::move(own_task)),
      pool_(pool),
      control_(control),
      links_(links) {}

GrpcWorkerCache::~GrpcWorkerCache() = default;

std::vector<std::string> GrpcWorkerCache::ListWorkers() const {
  std::vector<std::string> tasks;
  for (const auto& [task, address] : addresses_) tasks.push_back(task);
  return tasks;
}

WorkerInterface* GrpcWorkerCache::GetWorker(std::string_view task) {
  if (task == own_task_) return own_worker_;
  MutexLock lock(&mu_);
  auto it = stubs_.find(task);
  if (it != stubs_.end()) return it->second.get();
  const auto address = addresses_.find(std::string(task));
  if (address == addresses_.end()) return nullptr;
  it = stubs_
           .try_emplace(address->first, NewGrpcRemoteWorker(address->second, address->first, pool_,
                                                            control_, links_))
           .first;
  return it->second.get();
}

}  // namespace millrace
