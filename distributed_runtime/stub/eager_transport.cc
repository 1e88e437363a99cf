// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/stub/eager_transport.h"

#include <optional>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/string_map.h"
#include "distributed_runtime/remote_rendezvous.h"
#include "distributed_runtime/stub/grpc_worker_cache.h"
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

class GrpcEagerCluster : public EagerCluster {
 public:
  GrpcEagerCluster(std::map<std::string, std::string> addresses, const std::string& own_task,
                   ThreadPool* pool, ThreadPool* control, WorkerInterface* own_worker,
                   std::shared_ptr<const LoadedCredentials> credentials,
                   std::optional<std::set<std::string>> trusted, const ObserveWorkers& observe)
      : addresses_(addresses),
        pool_(pool),
        workers_(std::move(addresses), own_task, pool, control, nullptr, nullptr,
                 std::move(credentials)) {
    if (trusted.has_value()) workers_.ShowCredentialsOnlyAt(*std::move(trusted));
    workers_.SetOwnWorker(own_worker);
    if (observe != nullptr) observed_ = observe(&workers_);
  }

  WorkerCache* workers() override {
    return observed_ != nullptr ? observed_.get() : static_cast<WorkerCache*>(&workers_);
  }

  EagerPeer* FindPeer(std::string_view task) override {
    MutexLock lock(&mu_);
    const auto known = peers_.find(task);
    if (known != peers_.end()) return known->second.get();
    const auto address = addresses_.find(std::string(task));
    if (address == addresses_.end()) return nullptr;
    auto peer = std::make_unique<GrpcEagerPeer>(address->second, address->first, pool_,
                                                workers_.CredentialsAt(address->second));
    return peers_.try_emplace(address->first, std::move(peer)).first->second.get();
  }

 private:
  const std::map<std::string, std::string> addresses_;
  ThreadPool* const pool_;
  std::unique_ptr<WorkerCache> observed_;  // told by the calls that `workers_` waits for
  GrpcWorkerCache workers_;
  Mutex mu_;
  StringMap<std::unique_ptr<EagerPeer>> peers_ ABSL_GUARDED_BY(mu_);
};

class GrpcEagerTransport : public EagerTransport {
 public:
  GrpcEagerTransport(ThreadPool* pool, ThreadPool* control, RendezvousManager* rendezvous,
                     WorkerInterface* own_worker,
                     std::shared_ptr<const LoadedCredentials> credentials, ObserveWorkers observe,
                     std::map<std::string, std::string> proven)
      : pool_(pool),
        control_(control),
        rendezvous_(rendezvous),
        own_worker_(own_worker),
        credentials_(std::move(credentials)),
        observe_(std::move(observe)),
        proven_(std::move(proven)) {}

  std::unique_ptr<EagerCluster> Connect(std::map<std::string, std::string> addresses,
                                        const std::string& own_task) override {
    for (auto& [task, address] : addresses) {
      if (const auto known = proven_.find(task); known != proven_.end()) address = known->second;
    }
    std::optional<std::set<std::string>> trusted = Trusted();
    for (const auto& [task, address] : addresses) {
      if (!trusted.has_value() || task == own_task || trusted->contains(address)) continue;
      MR_LOG(kWarning, "a client names ", address, " as ", task, ", which is no address of this ",
             "cluster: it is not shown the cluster's token");
    }
    return std::make_unique<GrpcEagerCluster>(std::move(addresses), own_task, pool_, control_,
                                              own_worker_, credentials_, std::move(trusted),
                                              observe_);
  }

  std::unique_ptr<RendezvousManager> NewRendezvous(const std::string& own_task,
                                                   FindWorker find) override {
    return NewRenamedRendezvousManager(own_task, std::move(find), rendezvous_);
  }

 private:
  // Addresses that may see the token: a client can name any host as a task. Certificates prove who
  // answers, and tell him nothing that he could use.
  std::optional<std::set<std::string>> Trusted() const {
    if (credentials_ == nullptr || !credentials_->has_token() || credentials_->has_tls()) return {};
    std::set<std::string> trusted;
    for (const auto& [task, address] : proven_) trusted.insert(address);
    return trusted;
  }

  ThreadPool* const pool_;
  ThreadPool* const control_;
  RendezvousManager* const rendezvous_;
  WorkerInterface* const own_worker_;
  const std::shared_ptr<const LoadedCredentials> credentials_;
  const ObserveWorkers observe_;
  const std::map<std::string, std::string> proven_;
};

}  // namespace

std::unique_ptr<EagerTransport> NewGrpcEagerTransport(
    ThreadPool* pool, ThreadPool* control, RendezvousManager* rendezvous,
    WorkerInterface* own_worker, std::shared_ptr<const LoadedCredentials> credentials,
    ObserveWorkers observe, std::map<std::string, std::string> proven) {
  return std::make_unique<GrpcEagerTransport>(pool, control, rendezvous, own_worker,
                                              std::move(credentials), std::move(observe),
                                              std::move(proven));
}

}  // namespace millrace
