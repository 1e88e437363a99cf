// SPDX-License-Identifier: Apache-2.0
#include "collective/collective_manager.h"

#include <chrono>
#include <deque>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "base/wait.h"
#include "collective/buffer_exchange.h"
#include "collective/collective_errors.h"
#include "collective/directory.h"
#include "collective/known_tasks.h"
#include "collective/step_collectives.h"
#include "collective/step_sequences.h"
#include "device/device_name.h"

namespace millrace {
namespace {

// Failed steps that are remembered.
constexpr std::size_t kMaxFailedSteps = 256;
// More than a cluster has.
constexpr std::size_t kMaxGroups = 65536;
// How often a leader is asked again that has not heard yet that a step is over, and when.
constexpr int kMaxAskAgain = 20;
constexpr std::chrono::milliseconds kAskAgain{100};
class Manager final : public CollectiveManager,
                      public WaitLister,
                      public std::enable_shared_from_this<Manager> {
 public:
  explicit Manager(CollectiveOptions options)
      : options_(std::move(options)), local_(this), tasks_(options_, &local_) {}

  CollectivePeer* local() override { return &local_; }
  void ListWaits(std::vector<Wait>* waits) const override { directory_.ListWaits(waits); }

  std::string ChooseLeader(std::string_view configured,
                           std::string_view master_task) const override {
    for (const std::string_view name :
         {configured, std::string_view(options_.leader), master_task}) {
      if (name.empty()) continue;
      const StatusOr<DeviceName> parsed = DeviceName::Parse(name);
      const std::string task = parsed.ok() ? TaskName(*parsed) : "";
      return task.empty() ? std::string(name) : task;  // a bad name is an error where it is used
    }
    return options_.task;
  }

  RefPtr<CollectiveExecutor> NewStep(int64_t step_id, const std::string& leader) override {
    RefPtr<BufferExchange> exchange;
    {
      MutexLock lock(&mu_);
      failed_.erase(step_id);
      StepEntry& found = exchanges_[step_id];
      if (found.exchange.get() == nullptr) found.exchange = MakeRef<BufferExchange>();
      found.begun = true;
      exchange = found.exchange;
    }
    return MakeRef<StepCollectives>(std::shared_ptr<KnownTasks>(shared_from_this(), &tasks_),
                                    leader, step_id, std::move(exchange));
  }

  void Cleanup(int64_t step_id) override {
    RefPtr<BufferExchange> exchange;
    {
      MutexLock lock(&mu_);
      const auto it = exchanges_.find(step_id);
      if (it == exchanges_.end()) return;
      exchange = std::move(it->second.exchange);
      exchanges_.erase(it);
      if (!exchange->aborted().ok()) {
        if (failed_.try_emplace(step_id, exchange).second) failed_order_.push_back(step_id);
        while (failed_order_.size() > kMaxFailedSteps) {
          failed_.erase(failed_order_.front());
          failed_order_.pop_front();
        }
      }
    }
    exchange->StartAbort(MarkDerived(errors::Cancelled("Cleanup ", step_id)));
    directory_.ForgetStep(step_id);
  }

  void CleanupAll(const Status& reason) override {
    tasks_.Stop();
    absl::flat_hash_map<int64_t, StepEntry> exchanges;
    {
      MutexLock lock(&mu_);
      exchanges.swap(exchanges_);
    }
    for (const auto& [step_id, entry] : exchanges)
      entry.exchange->StartAbort(CollectiveAbortedBy(reason));
  }

  void NextStepId(const std::string& leader, int64_t graph_key, CancellationManager* cancellation,
                  std::function<void(StatusOr<int64_t>)> done) override {
    StepSequences::Refresh refresh;
    if (leader != options_.task) {
      refresh = [self = shared_from_this(), leader, graph_key](
                    StepSequences::Done answer, const StepSequences::Wanted& wanted) {
        self->AskForStepId(leader, graph_key, 0, std::move(answer), wanted);
      };
    }
    const bool leads = leader == options_.task;
    sequences_.Next(graph_key, refresh, cancellation,
                    [self = shared_from_this(), graph_key, leads,
                     done = std::move(done)](StatusOr<int64_t> id) {
                      if (id.ok()) {
                        MutexLock lock(&self->mu_);
                        self->steps_[graph_key].leads = leads;
                      }
                      done(std::move(id));
                    });
  }
  // Members for which the step went well count on by one and ask nobody. So does a leader whose own
  // part has failed: another sequence would have them wait for each other's steps.
  void RetireStepId(int64_t graph_key, int64_t step_id, bool succeeded) override {
    bool leads = false;
    {
      MutexLock lock(&mu_);
      Steps& steps = steps_[graph_key];
      leads = steps.leads;
      if (succeeded) steps.last_good = step_id;
    }
    sequences_.Retire(graph_key, step_id, succeeded || leads);
  }

 private:
  class Local final : public CollectivePeer {
   public:
    explicit Local(Manager* manager) : manager_(*manager) {}
    void CompleteGroup(const GroupRequest& request, CancellationManager* cancellation,
                       GroupDone done) override {
      if (Status room = manager_.CheckRoom(request.group_key); !room.ok()) return done(room);
      manager_.directory_.JoinGroup(request, cancellation, std::move(done));
    }
    void CompleteInstance(const InstanceRequest& request, CancellationManager* cancellation,
                          InstanceDone done) override {
      manager_.directory_.JoinInstance(request, cancellation, std::move(done));
    }
    void GetStepSequence(int64_t graph_key, CancellationManager* cancellation,
                         SequenceDone done) override {
      done(manager_.sequences_.Peek(graph_key));
    }
    void ReceiveBuffer(const BufferRequest& request, CancellationManager* cancellation,
                       BufferDone done) override {
      if (Status status = manager_.CheckSource(request); !status.ok()) {
        return done(status, Tensor());
      }
      const RefPtr<BufferExchange> exchange = manager_.FindExchange(request.step_id);
      exchange->Take(request.key, request.num_bytes, cancellation,
                     [this, step_id = request.step_id, done = std::move(done)](
                         const Status& status, const Tensor& piece) {
                       if (!status.ok()) manager_.DropIdle(step_id);
                       done(status, piece);
                     });
    }

   private:
    Manager& manager_;
  };

  Status CheckSource(const BufferRequest& request) const {
    for (const DeviceAttributes& device : options_.devices) {
      if (device.name != request.src_device) continue;
      if (device.incarnation == request.src_incarnation) return OkStatus();
      Status status = errors::FailedPrecondition(
          "RecvBuf expects a different device incarnation: ", request.src_incarnation, " vs. ",
          device.incarnation, ". Your worker job (\"", options_.task,
          "\") was probably restarted. Check your worker job for the reason why it was "
          "restarted.");
      status.SetPayload(kWorkerRestartedPayload, "");
      return status;
    }
    return errors::InvalidArgument(options_.task, " has no device ", request.src_device);
  }

  // The directory keeps a group for good.
  Status CheckRoom(int32_t group_key) {
    MutexLock lock(&mu_);
    if (group_keys_.size() >= kMaxGroups && !group_keys_.contains(group_key)) {
      return errors::ResourceExhausted(
          options_.task, " keeps ", kMaxGroups,
          " collective groups, the most there may be (group_key=", group_key, ")");
    }
    group_keys_.insert(group_key);
    return OkStatus();
  }

  RefPtr<BufferExchange> FindExchange(int64_t step_id) {
    MutexLock lock(&mu_);
    const auto failed = failed_.find(step_id);
    if (failed != failed_.end()) return failed->second;
    StepEntry& found = exchanges_[step_id];
    if (found.exchange.get() == nullptr) found.exchange = MakeRef<BufferExchange>();
    return found.exchange;
  }

  // What others asked of a step that never began here, or that is over, is not kept for ever.
  void DropIdle(int64_t step_id) {
    MutexLock lock(&mu_);
    const auto it = exchanges_.find(step_id);
    if (it == exchanges_.end() || it->second.begun) return;
    // Another call that has found it is about to wait there.
    if (it->second.exchange->RefCountIsOne() && it->second.exchange->idle()) {
      exchanges_.erase(it);
    }
  }

  // A step of this id must not be begun again while members may hold pieces of the last attempt.
  bool HasFailed(int64_t step_id) const {
    MutexLock lock(&mu_);
    const auto it = failed_.find(step_id);
    return it != failed_.end() && it->second->used();
  }

  // Nor one that ended well here, and is still under way at the leader: it goes on soon.
  bool IsOver(int64_t graph_key, int64_t step_id) const {
    MutexLock lock(&mu_);
    const auto it = steps_.find(graph_key);
    return it != steps_.end() && it->second.last_good == step_id;
  }

  void AskForStepId(const std::string& leader, int64_t graph_key, int times,
                    StepSequences::Done answer, const StepSequences::Wanted& wanted) {
    const StatusOr<CollectivePeer*> peer = tasks_.Peer(leader);
    if (!peer.ok()) return answer(peer.status());
    (*peer)->GetStepSequence(
        graph_key, wanted.get(),
        [self = shared_from_this(), leader, graph_key, times, answer = std::move(answer),
         wanted](StatusOr<int64_t> id) {
          if (!id.ok()) {
            return answer(Annotate(id.status(), StrCat("; ", leader, " leads the collectives of ",
                                                       "graph key ", graph_key)));
          }
          const bool again = self->HasFailed(*id) || self->IsOver(graph_key, *id);
          if (!again || times >= kMaxAskAgain) return answer(*id);
          if (wanted->IsCancelled())
            return answer(errors::Cancelled("the id is not wanted any more"));
          (void)self->tasks_.At(
              DeadlineAfter(kAskAgain), [self, leader, graph_key, times, answer, wanted] {
                const bool asked = self->tasks_.WithPeers(
                    [&] { self->AskForStepId(leader, graph_key, times + 1, answer, wanted); });
                if (!asked) answer(errors::Unavailable(self->options_.task, " is going down"));
              });
        });
  }

  const CollectiveOptions options_;
  Local local_;
  KnownTasks tasks_;
  CollectiveDirectory directory_;
  StepSequences sequences_;
  mutable Mutex mu_;
  struct StepEntry {
    RefPtr<BufferExchange> exchange;
    bool begun = false;  // here; if not, only others have asked
  };
  struct Steps {
    bool leads = false;      // this task, those with the key
    int64_t last_good = -1;  // the id of the last that ended well here
  };
  absl::flat_hash_map<int64_t, StepEntry> exchanges_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<int64_t, Steps> steps_ ABSL_GUARDED_BY(mu_);  // by graph key
  absl::flat_hash_map<int64_t, RefPtr<BufferExchange>> failed_ ABSL_GUARDED_BY(mu_);
  std::deque<int64_t> failed_order_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<int32_t> group_keys_ ABSL_GUARDED_BY(mu_);  // that were asked for
};

}  // namespace

std::shared_ptr<CollectiveManager> NewCollectiveManager(CollectiveOptions options) {
  return std::make_shared<Manager>(std::move(options));
}

}  // namespace millrace
