// SPDX-License-Identifier: Apache-2.0
// The workers of a cluster: this task's own, and stubs for the others.
#ifndef DISTRIBUTED_RUNTIME_STUB_GRPC_WORKER_CACHE_H_
#define DISTRIBUTED_RUNTIME_STUB_GRPC_WORKER_CACHE_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/string_map.h"
#include "base/thread_pool.h"
#include "distributed_runtime/stub/remote_worker.h"
#include "session/worker_cache.h"
#include "transport/grpc/credentials.h"
#include "transport/link/link_hub.h"
#include "transport/peer_table.h"

namespace millrace {

// A stub, and its connection, is made when it is first asked for.
class GrpcWorkerCache : public WorkerCache {
 public:
  // `addresses`: task name -> "host:port", the own task included. Callbacks of stubs run on
  // `pool`, those that begin nothing on `control`, or on a thread of `links` (may be null); all
  // must outlive the cache. `peers` (may be null) says who this task is, `credentials` (may be
  // null) prove it.
  GrpcWorkerCache(std::map<std::string, std::string> addresses, std::string own_task,
                  ThreadPool* pool, ThreadPool* control, LinkHub* links = nullptr,
                  const PeerTable* peers = nullptr,
                  std::shared_ptr<const LoadedCredentials> credentials = nullptr);
  ~GrpcWorkerCache() override;

  // Before the first GetWorker: who answers at other addresses is shown no credentials. Without
  // this they are shown to all.
  void ShowCredentialsOnlyAt(std::set<std::string> addresses) { trusted_ = std::move(addresses); }
  // What whoever answers there is shown; null: nothing.
  std::shared_ptr<const LoadedCredentials> CredentialsAt(const std::string& address) const {
    return !trusted_.has_value() || trusted_->contains(address) ? credentials_ : nullptr;
  }
  // Before the first GetWorker; the worker must outlive the cache's use.
  void SetOwnWorker(WorkerInterface* worker) { own_worker_ = worker; }

  std::vector<std::string> ListWorkers() const override;
  WorkerInterface* GetWorker(std::string_view task) override;
  std::string Address(std::string_view task) const override;

  // The tasks for which calls wait that are no questions for signs of life; and the end of those
  // for one of them.
  std::vector<std::string> WaitedFor() const;
  void FailWaiting(std::string_view task, const Status& why);
  // Whether a task has ever answered at its address.
  bool HasAnswered(std::string_view task) const;
  // As RemoteWorker::version; "unknown" for a task that was never called.
  std::string Version(std::string_view task) const;

 private:
  const std::map<std::string, std::string> addresses_;
  const std::string own_task_;
  ThreadPool* const pool_;
  ThreadPool* const control_;
  LinkHub* const links_;
  const PeerTable* const peers_;
  const std::shared_ptr<const LoadedCredentials> credentials_;
  std::optional<std::set<std::string>> trusted_;  // empty: all addresses
  WorkerInterface* own_worker_ = nullptr;
  mutable Mutex mu_;
  StringMap<std::unique_ptr<RemoteWorker>> stubs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_STUB_GRPC_WORKER_CACHE_H_
