// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/pages/observed_workers.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/string_map.h"
#include "collective/peer.h"
#include "session/forwarding_worker.h"

namespace millrace {
namespace {

// Counts the parts of tensors that the members of a collective get from the task.
class ObservedCollectives final : public CollectivePeer {
 public:
  ObservedCollectives(CollectivePeer* collectives, PeerStats* peer)
      : collectives_(collectives), peer_(peer) {}

  void CompleteGroup(const GroupRequest& request, CancellationManager* cancellation,
                     GroupDone done) override {
    collectives_->CompleteGroup(request, cancellation, std::move(done));
  }
  void CompleteInstance(const InstanceRequest& request, CancellationManager* cancellation,
                        InstanceDone done) override {
    collectives_->CompleteInstance(request, cancellation, std::move(done));
  }
  void GetStepSequence(int64_t graph_key, CancellationManager* cancellation,
                       SequenceDone done) override {
    collectives_->GetStepSequence(graph_key, cancellation, std::move(done));
  }
  void ReceiveBuffer(const BufferRequest& request, CancellationManager* cancellation,
                     BufferDone done) override {
    peer_->receives_begun.Add();
    collectives_->ReceiveBuffer(
        request, cancellation,
        [peer = peer_, begin = SteadyNanos(), done = std::move(done)](const Status& status,
                                                                      const Tensor& bytes) {
          peer->receives.Add(SteadyNanos() - begin);
          if (status.ok()) {
            peer->Heard();
            peer->received_bytes.Add(static_cast<int64_t>(bytes.num_bytes()));
            peer->collective_bytes.Add(static_cast<int64_t>(bytes.num_bytes()));
          }
          done(status, bytes);
        });
  }

 private:
  CollectivePeer* const collectives_;
  PeerStats* const peer_;
};

class ObservedWorker final : public ForwardingWorker {
 public:
  ObservedWorker(WorkerInterface* worker, std::string task, PeerStats* peer, StepLog* log,
                 StepTracer* tracer)
      : ForwardingWorker(worker), task_(std::move(task)), peer_(peer), log_(log), tracer_(tracer) {
    CollectivePeer* const collectives = worker->collectives();
    if (peer_ != nullptr && collectives != nullptr) collectives_.emplace(collectives, peer_);
  }

  CollectivePeer* collectives() override {
    return collectives_ ? &*collectives_ : ForwardingWorker::collectives();
  }

  void GetStatusAsync(const CallOptions& options, std::vector<pb::DeviceAttributes>* devices,
                      Done done) override {
    ForwardingWorker::GetStatusAsync(options, devices, Counted(std::move(done)));
  }

  void RunGraphAsync(const CallOptions& options, RunGraphArgs* args, RunGraphResult* result,
                     Done done) override {
    const int64_t step_id = args->step_id;
    const int64_t request_id = args->request_id;
    log_->PartBegins(args->session_handle, step_id, task_, request_id);
    const bool asked = args->record_timeline;
    const bool traced =
        tracer_->active() && tracer_->PartBegins(args->session_handle, step_id, request_id);
    if (traced) args->record_timeline = true;
    ForwardingWorker::RunGraphAsync(
        options, args, result,
        [this, step_id, request_id, result, asked, traced, sent = WallNanos(),
         begun = SteadyNanos(), done = Counted(std::move(done))](Status status) {
          log_->PartEnds(step_id, task_, request_id);
          if (traced) {
            pb::TracedPart part;
            part.set_task(task_);
            part.set_sent_nanos(sent);
            // The wall clock may have been set meanwhile.
            part.set_answered_nanos(sent + SteadyNanos() - begun);
            if (asked) {
              *part.mutable_stats() = result->step_stats;
            } else {
              part.mutable_stats()->Swap(&result->step_stats);
            }
            tracer_->PartEnds(step_id, std::move(part));
          }
          done(std::move(status));
        });
  }

  void RecvTensorAsync(const CallOptions& options, int64_t step_id, const std::string& key,
                       RecvDone done) override {
    if (peer_ == nullptr)
      return ForwardingWorker::RecvTensorAsync(options, step_id, key, std::move(done));
    peer_->receives_begun.Add();
    ForwardingWorker::RecvTensorAsync(
        options, step_id, key,
        [this, step_id, begin = SteadyNanos(), done = std::move(done)](
            const Status& status, const Tensor& tensor, bool is_dead) {
          const int64_t nanos = SteadyNanos() - begin;
          peer_->receives.Add(nanos);
          if (status.ok()) {
            peer_->Heard();
            peer_->received_bytes.Add(static_cast<int64_t>(tensor.num_bytes()));
            log_->Waited(step_id, task_, nanos);
          }
          done(status, tensor, is_dead);
        });
  }

 private:
  Done Counted(Done done) {
    if (peer_ == nullptr) return done;
    peer_->calls_begun.Add();
    return [peer = peer_, done = std::move(done)](Status status) {
      peer->calls_ended.Add();
      if (status.ok()) {
        peer->Heard();
      } else {
        peer->failed_calls.Add();
      }
      done(std::move(status));
    };
  }

  const std::string task_;
  PeerStats* const peer_;  // null: this task itself
  std::optional<ObservedCollectives> collectives_;
  StepLog* const log_;
  StepTracer* const tracer_;
};

class ObservedWorkers final : public WorkerCache {
 public:
  ObservedWorkers(WorkerCache* workers, PeerTraffic* traffic, StepLog* log, StepTracer* tracer)
      : workers_(workers), traffic_(traffic), log_(log), tracer_(tracer) {}

  std::vector<std::string> ListWorkers() const override { return workers_->ListWorkers(); }
  std::string Address(std::string_view task) const override { return workers_->Address(task); }
  WorkerInterface* GetWorker(std::string_view task) override {
    MutexLock lock(&mu_);
    const auto it = observed_.find(task);
    if (it != observed_.end()) return it->second.get();
    WorkerInterface* const worker = workers_->GetWorker(task);
    if (worker == nullptr) return nullptr;
    std::string name(task);
    auto made = std::make_unique<ObservedWorker>(worker, name, traffic_->Find(task), log_, tracer_);
    return observed_.emplace(std::move(name), std::move(made)).first->second.get();
  }

 private:
  WorkerCache* const workers_;
  PeerTraffic* const traffic_;
  StepLog* const log_;
  StepTracer* const tracer_;
  Mutex mu_;
  StringMap<std::unique_ptr<ObservedWorker>> observed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<WorkerCache> NewObservedWorkers(WorkerCache* workers, PeerTraffic* traffic,
                                                StepLog* log, StepTracer* tracer) {
  return std::make_unique<ObservedWorkers>(workers, traffic, log, tracer);
}

}  // namespace millrace
