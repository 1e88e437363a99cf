// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/stub/eager_transport.h"

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/string_map.h"
#include "distributed_runtime/remote_rendezvous.h"
#include "distributed_runtime/stub/grpc_worker_cache.h"
#include "distributed_runtime/stub/refusing_worker.h"
#include "transport/grpc/grpc_util.h"
#include "transport/grpc/rpc_channel.h"
#include "transport/methods.h"

namespace millrace {
namespace {

class GrpcEagerPeer : public EagerPeer {
 public:
  GrpcEagerPeer(const std::string& address, const std::string& task, ThreadPool* pool,
                std::shared_ptr<const LoadedCredentials> credentials)
      : channel_(address, task, pool, "", std::move(credentials), task) {}

  void EnqueueAsync(const CallOptions& options, const pb::EnqueueRequest& request,
                    Done done) override {
    channel_.Call(methods::kEagerEnqueue, options, ToByteBuffer(request), RpcChannel::IfDown::kFail,
                  [done = std::move(done)](Status status, const grpc::ByteBuffer&) {
                    done(std::move(status));
                  });
  }

  void RunComponentFunctionAsync(const CallOptions& options,
                                 const pb::RunComponentFunctionRequest& request,
                                 pb::RunComponentFunctionResponse* response, Done done) override {
    channel_.Call(methods::kEagerRunComponentFunction, options, ToByteBuffer(request),
                  RpcChannel::IfDown::kFail,
                  [response, done = std::move(done)](Status status, const grpc::ByteBuffer& bytes) {
                    if (status.ok()) status = ReceivedBytes(bytes).Parse(response);
                    done(std::move(status));
                  });
  }

 private:
  RpcChannel channel_;
};

// One that is not called.
class RefusingPeer : public EagerPeer {
 public:
  RefusingPeer(Status why, ThreadPool* pool) : why_(std::move(why)), pool_(pool) {}

  void EnqueueAsync(const CallOptions&, const pb::EnqueueRequest&, Done done) override {
    pool_->Schedule([why = why_, done = std::move(done)] { done(why); });
  }
  void RunComponentFunctionAsync(const CallOptions& options, const pb::RunComponentFunctionRequest&,
                                 pb::RunComponentFunctionResponse*, Done done) override {
    EnqueueAsync(options, {}, std::move(done));
  }

 private:
  const Status why_;
  ThreadPool* const pool_;
};

// The tasks of a context: those that are called, and why the others are not.
struct Reached {
  std::map<std::string, std::string> addresses;
  std::map<std::string, Status, std::less<>> refused;
};

class GrpcEagerCluster : public EagerCluster, private WorkerCache {
 public:
  GrpcEagerCluster(Reached reached, const std::string& own_task, ThreadPool* pool,
                   ThreadPool* control, WorkerInterface* own_worker,
                   std::shared_ptr<const LoadedCredentials> credentials,
                   std::optional<std::set<std::string>> trusted, const ObserveWorkers& observe)
      : addresses_(reached.addresses),
        refused_(std::move(reached.refused)),
        own_task_(own_task),
        pool_(pool),
        workers_(std::move(reached.addresses), own_task, pool, control, nullptr, nullptr,
                 std::move(credentials)) {
    if (trusted.has_value()) workers_.ShowCredentialsOnlyAt(*std::move(trusted));
    workers_.SetOwnWorker(own_worker);
    if (observe != nullptr) observed_ = observe(&workers_);
  }

  WorkerCache* workers() override { return this; }

  EagerPeer* FindPeer(std::string_view task) override {
    MutexLock lock(&mu_);
    const auto known = peers_.find(task);
    if (known != peers_.end()) return known->second.get();
    if (const auto refused = refused_.find(task); refused != refused_.end()) {
      auto peer = std::make_unique<RefusingPeer>(refused->second, pool_);
      return peers_.try_emplace(refused->first, std::move(peer)).first->second.get();
    }
    const auto address = addresses_.find(std::string(task));
    if (address == addresses_.end()) return nullptr;
    auto peer = std::make_unique<GrpcEagerPeer>(address->second, address->first, pool_,
                                                workers_.CredentialsAt(address->second));
    return peers_.try_emplace(address->first, std::move(peer)).first->second.get();
  }

 private:
  std::vector<std::string> ListWorkers() const override { return Called()->ListWorkers(); }
  WorkerInterface* GetWorker(std::string_view task) override {
    const auto refused = refused_.find(task);
    if (refused == refused_.end() || task == own_task_) return Called()->GetWorker(task);
    MutexLock lock(&mu_);
    auto& worker = refusing_[refused->first];
    if (worker == nullptr) worker = std::make_unique<RefusingWorker>(refused->second, pool_);
    return worker.get();
  }
  std::string Address(std::string_view task) const override { return Called()->Address(task); }

  WorkerCache* Called() { return observed_ != nullptr ? observed_.get() : &workers_; }
  const WorkerCache* Called() const { return observed_ != nullptr ? observed_.get() : &workers_; }

  const std::map<std::string, std::string> addresses_;
  const std::map<std::string, Status, std::less<>> refused_;
  const std::string own_task_;
  ThreadPool* const pool_;
  std::unique_ptr<WorkerCache> observed_;  // told by the calls that `workers_` waits for
  GrpcWorkerCache workers_;
  Mutex mu_;
  StringMap<std::unique_ptr<EagerPeer>> peers_ ABSL_GUARDED_BY(mu_);
  StringMap<std::unique_ptr<RefusingWorker>> refusing_ ABSL_GUARDED_BY(mu_);
};

class GrpcEagerTransport : public EagerTransport {
 public:
  GrpcEagerTransport(ThreadPool* pool, ThreadPool* control, RendezvousManager* rendezvous,
                     WorkerInterface* own_worker,
                     std::shared_ptr<const LoadedCredentials> credentials, const Reach* reach,
                     ObserveWorkers observe)
      : pool_(pool),
        control_(control),
        rendezvous_(rendezvous),
        own_worker_(own_worker),
        credentials_(std::move(credentials)),
        reach_(reach),
        observe_(std::move(observe)) {}

  std::unique_ptr<EagerCluster> Connect(std::map<std::string, std::string> addresses,
                                        const std::string& own_task,
                                        const CallerHost& caller) override {
    Reached reached;
    for (auto& [task, address] : addresses) {
      StatusOr<std::string> found = Find(task, address, caller);
      if (found.ok()) {
        reached.addresses[task] = *std::move(found);
      } else {
        reached.refused[task] = found.status();
      }
    }
    Warn(reached, own_task);
    return std::make_unique<GrpcEagerCluster>(std::move(reached), own_task, pool_, control_,
                                              own_worker_, credentials_, Trusted(), observe_);
  }

  std::unique_ptr<RendezvousManager> NewRendezvous(const std::string& own_task,
                                                   FindWorker find) override {
    return NewRenamedRendezvousManager(own_task, std::move(find), rendezvous_);
  }

 private:
  StatusOr<std::string> Find(const std::string& task, const std::string& address,
                             const CallerHost& caller) const {
    const auto& own = reach_->addresses();
    if (credentials_ != nullptr) {
      if (const auto known = own.find(task); known != own.end()) return known->second;
    }
    return reach_->Find("an eager context", task, address, caller);
  }

  // A client names itself among the tasks, at an address that is of no use to others where it
  // comes from elsewhere: that is no reason to refuse the context.
  static void Warn(const Reached& reached, const std::string& own_task) {
    const std::size_t others = reached.refused.size() - reached.refused.count(own_task);
    if (others == 0) return;
    auto first = reached.refused.begin();
    if (first->first == own_task) ++first;
    MR_LOG(kInfo, "of the tasks of an eager context ", others, others == 1 ? " is" : " are",
           " not called: ", Message(first->second));
  }

  // Addresses that may see the token: a client can name its own host as a task. Certificates prove
  // who answers, and tell him nothing that he could use.
  std::optional<std::set<std::string>> Trusted() const {
    if (credentials_ == nullptr || !credentials_->has_token() || credentials_->has_tls()) return {};
    std::set<std::string> trusted;
    for (const auto& [task, address] : reach_->addresses()) trusted.insert(address);
    return trusted;
  }

  ThreadPool* const pool_;
  ThreadPool* const control_;
  RendezvousManager* const rendezvous_;
  WorkerInterface* const own_worker_;
  const std::shared_ptr<const LoadedCredentials> credentials_;
  const Reach* const reach_;
  const ObserveWorkers observe_;
};

}  // namespace

std::unique_ptr<EagerTransport> NewGrpcEagerTransport(
    ThreadPool* pool, ThreadPool* control, RendezvousManager* rendezvous,
    WorkerInterface* own_worker, std::shared_ptr<const LoadedCredentials> credentials,
    const Reach* reach, ObserveWorkers observe) {
  return std::make_unique<GrpcEagerTransport>(pool, control, rendezvous, own_worker,
                                              std::move(credentials), reach, std::move(observe));
}

}  // namespace millrace
