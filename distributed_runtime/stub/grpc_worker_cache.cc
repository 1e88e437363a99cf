// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/stub/grpc_worker_cache.h"

#include <utility>

namespace millrace {

GrpcWorkerCache::GrpcWorkerCache(std::map<std::string, std::string> addresses, std::string own_task,
                                 ThreadPool* pool, ThreadPool* control, LinkHub* links,
                                 const PeerTable* peers,
                                 std::shared_ptr<const LoadedCredentials> credentials)
    : addresses_(std::move(addresses)),
      own_task_(std::move(own_task)),
      pool_(pool),
      control_(control),
      links_(links),
      peers_(peers),
      credentials_(std::move(credentials)) {}

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
  std::string identity = peers_ == nullptr ? "" : peers_->IdentityFor(task);
  it = stubs_
           .try_emplace(address->first, NewGrpcRemoteWorker(address->second, address->first, pool_,
                                                            control_, links_, std::move(identity),
                                                            CredentialsAt(address->second)))
           .first;
  return it->second.get();
}

std::vector<std::string> GrpcWorkerCache::WaitedFor() const {
  std::vector<std::string> tasks;
  MutexLock lock(&mu_);
  for (const auto& [task, stub] : stubs_) {
    if (stub->waits()) tasks.push_back(task);
  }
  return tasks;
}

void GrpcWorkerCache::FailWaiting(std::string_view task, const Status& why) {
  RemoteWorker* stub = nullptr;
  {
    MutexLock lock(&mu_);
    const auto it = stubs_.find(task);
    if (it != stubs_.end()) stub = it->second.get();
  }
  if (stub != nullptr) stub->FailWaiting(why);  // stubs are as long as the cache
}

bool GrpcWorkerCache::HasAnswered(std::string_view task) const {
  MutexLock lock(&mu_);
  const auto it = stubs_.find(task);
  return it != stubs_.end() && it->second->has_answered();
}

std::string GrpcWorkerCache::Version(std::string_view task) const {
  MutexLock lock(&mu_);
  const auto it = stubs_.find(task);
  return it == stubs_.end() ? "unknown" : it->second->version();
}

std::string GrpcWorkerCache::Address(std::string_view task) const {
  const auto it = addresses_.find(std::string(task));
  return it == addresses_.end() ? "" : it->second;
}

}  // namespace millrace
