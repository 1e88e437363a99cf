// SPDX-License-Identifier: Apache-2.0
// A worker that passes every call on: what adds to some of a worker's calls derives from it.
#ifndef SESSION_FORWARDING_WORKER_H_
#define SESSION_FORWARDING_WORKER_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "session/worker_interface.h"

namespace millrace {

class ForwardingWorker : public WorkerInterface {
 public:
  // `worker` must outlive this.
  explicit ForwardingWorker(WorkerInterface* worker) : worker_(worker) {}

  void GetStatusAsync(const CallOptions& options, std::vector<pb::DeviceAttributes>* devices,
                      Done done) override {
    worker_->GetStatusAsync(options, devices, std::move(done));
  }
  void CreateSessionAsync(const CallOptions& options, const WorkerSessionOptions& session,
                          Done done) override {
    worker_->CreateSessionAsync(options, session, std::move(done));
  }
  void DeleteSessionAsync(const CallOptions& options, const std::string& session_handle,
                          Done done) override {
    worker_->DeleteSessionAsync(options, session_handle, std::move(done));
  }
  void RegisterGraphAsync(const CallOptions& options, RegisterGraphArgs args,
                          std::string* graph_handle, Done done) override {
    worker_->RegisterGraphAsync(options, std::move(args), graph_handle, std::move(done));
  }
  void DeregisterGraphAsync(const CallOptions& options, const std::string& session_handle,
                            const std::string& graph_handle, Done done) override {
    worker_->DeregisterGraphAsync(options, session_handle, graph_handle, std::move(done));
  }
  void RunGraphAsync(const CallOptions& options, RunGraphArgs* args, RunGraphResult* result,
                     Done done) override {
    worker_->RunGraphAsync(options, args, result, std::move(done));
  }
  void CleanupGraphAsync(const CallOptions& options, int64_t step_id, Done done) override {
    worker_->CleanupGraphAsync(options, step_id, std::move(done));
  }
  void CleanupAllAsync(const CallOptions& options, std::vector<std::string> containers,
                       Done done) override {
    worker_->CleanupAllAsync(options, std::move(containers), std::move(done));
  }
  void ListWaitsAsync(const CallOptions& options, std::optional<int64_t> step_id,
                      pb::TaskWaits* waits, Done done) override {
    worker_->ListWaitsAsync(options, step_id, waits, std::move(done));
  }
  bool OffersDirectGraphs() const override { return worker_->OffersDirectGraphs(); }
  std::shared_ptr<DirectGraph> FindDirectGraph(const std::string& session_handle,
                                               const std::string& graph_handle) override {
    return worker_->FindDirectGraph(session_handle, graph_handle);
  }
  void RecvTensorAsync(const CallOptions& options, int64_t step_id, const std::string& key,
                       RecvDone done) override {
    worker_->RecvTensorAsync(options, step_id, key, std::move(done));
  }
  CollectivePeer* collectives() override { return worker_->collectives(); }

 private:
  WorkerInterface* const worker_;
};

}  // namespace millrace

#endif  // SESSION_FORWARDING_WORKER_H_
