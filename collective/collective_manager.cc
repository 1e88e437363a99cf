#include "collective/collective_manager.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "collective/algorithms.h"
#include "collective/buffer_exchange.h"
#include "collective/combine.h"
#include "collective/directory.h"
#include "collective/step_sequences.h"
#include "device/device_name.h"

namespace millrace {
namespace {

// Failed steps that are remembered.
constexpr std::size_t kMaxFailedSteps = 256;
// How often a leader is asked again that has not heard yet that a step has failed, and when.
constexpr int kMaxAskAgain = 20;
constexpr std::chrono::milliseconds kAskAgain{100};
constexpr std::string_view kAbortedBy = "Collective ops is aborted by: ";

// What the others get of the first error.
Status AbortedBy(const Status& reason) {
  if (Message(reason).find(kAbortedBy) != std::string_view::npos) return MarkDerived(reason);
  return MarkDerived(WithMessage(reason, StrCat(kAbortedBy, Message(reason))));
}

bool TellsOfAbort(const Status& status) {
  return Message(status).find(kAbortedBy) != std::string_view::npos;
}

std::string Describe(const CollectiveParams& params) {
  return StrCat("collective ", CollectiveKindName(params.kind), " {{node ", params.node,
                "}} (group_key=", params.group_key, ", instance_key=", params.instance_key, ")");
}

std::string Describe(const ResolvedCollective& collective) {
  return StrCat("rank ", collective.rank, " of ", collective.group->size(), ", ", collective.device,
                ", in ", Describe(collective.params));
}

class Manager;

// The pieces of one step, and how it ends early.
class StepTransport final : public CollectiveTransport {
 public:
  StepTransport(std::shared_ptr<Manager> manager, int64_t step_id, RefPtr<BufferExchange> exchange)
      : manager_(std::move(manager)), step_id_(step_id), exchange_(std::move(exchange)) {}

  void Send(const std::string& key, Tensor piece, Sent sent) override {
    exchange_->Provide(key, std::move(piece), &cancellation_,
                       [self = RefPtr<StepTransport>::Share(this),
                        sent = std::move(sent)](const Status& status) { sent(status); });
  }
  void Receive(const std::string& key, int64_t num_bytes, const ResolvedCollective& collective,
               int src_rank, Received received) override;
  void Abort(const Status& reason) override;

  // Looks after the tasks of a group from now on: an error there ends the step here.
  void Watch(const CollectiveGroup& group, const std::string& device);
  void StopWatching() { watching_.StartCancel(errors::Cancelled("the step has ended")); }

  CancellationManager* cancellation() { return &cancellation_; }
  Status aborted() const { return exchange_->aborted(); }
  int64_t step_id() const { return step_id_; }

 private:
  const std::shared_ptr<Manager> manager_;
  const int64_t step_id_;
  const RefPtr<BufferExchange> exchange_;
  CancellationManager cancellation_;  // of everything but watching
  CancellationManager watching_;
  Mutex mu_;
  std::map<std::string, bool> watched_ ABSL_GUARDED_BY(mu_);  // tasks
};

class StepCollectives final : public CollectiveExecutor {
 public:
  StepCollectives(std::shared_ptr<Manager> manager, std::string leader, int64_t step_id,
                  RefPtr<BufferExchange> exchange)
      : manager_(manager),
        leader_(std::move(leader)),
        transport_(MakeRef<StepTransport>(std::move(manager), step_id, std::move(exchange))) {}
  ~StepCollectives() override { transport_->StopWatching(); }

  void ResolveAsync(const CollectiveParams& params, const Device& device,
                    Resolved resolved) override;
  bool IsCurrent(const ResolvedCollective& resolved) const override;
  void RunAsync(std::shared_ptr<const ResolvedCollective> resolved, const std::string& key,
                const Tensor& input, const Tensor& output, Done done) override;
  void AgreeAsync(std::shared_ptr<const ResolvedCollective> resolved, const std::string& key,
                  std::string note, Decide decide, Agreed agreed) override;
  std::shared_ptr<Guard> GuardRun(std::shared_ptr<const ResolvedCollective> resolved,
                                  std::function<void(const Status&)> stop) override;
  void Abort(const Status& reason) override { transport_->Abort(reason); }

 private:
  struct Resolution;
  struct Timers;
  class RunGuard;
  std::shared_ptr<Timers> StartTimers(const CollectiveParams& params, const char* doing);
  std::shared_ptr<Timers> StartRunTimers(const std::shared_ptr<const ResolvedCollective>& resolved);
  // What moves pieces, and ends with `done`.
  CollectiveRun NewRun(std::shared_ptr<const ResolvedCollective> resolved, std::string key,
                       const Tensor& input, const Tensor& output, Done done);
  void ResolveInstance(const std::shared_ptr<Resolution>& r,
                       std::shared_ptr<const CollectiveGroup> group);
  void FinishResolution(const std::shared_ptr<Resolution>& r, Status status);

  const std::shared_ptr<Manager> manager_;
  const std::string leader_;
  const RefPtr<StepTransport> transport_;
};

class Manager final : public CollectiveManager, public std::enable_shared_from_this<Manager> {
 public:
  explicit Manager(CollectiveOptions options) : options_(std::move(options)), local_(this) {}

  CollectivePeer* local() override { return &local_; }

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
    return MakeRef<StepCollectives>(shared_from_this(), leader, step_id, std::move(exchange));
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
    {
      MutexLock lock(&stop_mu_);
      stopped_ = true;
    }
    absl::flat_hash_map<int64_t, StepEntry> exchanges;
    {
      MutexLock lock(&mu_);
      exchanges.swap(exchanges_);
    }
    for (const auto& [step_id, entry] : exchanges) entry.exchange->StartAbort(AbortedBy(reason));
  }

  void NextStepId(const std::string& leader, int64_t graph_key, CancellationManager* cancellation,
                  std::function<void(StatusOr<int64_t>)> done) override {
    StepSequences::Refresh refresh;
    if (leader != options_.task) {
      refresh = [self = shared_from_this(), leader, graph_key](StepSequences::Done answer,
                                                               std::function<bool()> wanted) {
        self->AskForStepId(leader, graph_key, 0, std::move(answer), std::move(wanted));
      };
    }
    sequences_.Next(graph_key, refresh, cancellation, std::move(done));
  }
  void RetireStepId(int64_t graph_key, int64_t step_id, bool succeeded) override {
    sequences_.Retire(graph_key, step_id, succeeded);
  }

  // -- For steps --

  const CollectiveOptions& options() const { return options_; }

  StatusOr<CollectivePeer*> Peer(std::string_view task) {
    if (task == options_.task) return &local_;
    CollectivePeer* const peer = options_.peer == nullptr ? nullptr : options_.peer(task);
    if (peer == nullptr) {
      return errors::InvalidArgument("the cluster has no task '", task, "' for collectives");
    }
    return peer;
  }

  std::shared_ptr<const CollectiveGroup> FindGroup(const std::string& leader, int32_t key) const {
    MutexLock lock(&mu_);
    const auto it = known_groups_.find({leader, key});
    return it == known_groups_.end() ? nullptr : it->second;
  }
  void RememberGroup(const std::string& leader, std::shared_ptr<const CollectiveGroup> group) {
    MutexLock lock(&mu_);
    const int32_t key = group->key;
    known_groups_[{leader, key}] = std::move(group);
  }
  // After an error: one of the members may have restarted.
  void ForgetGroup(const std::string& leader, int32_t key) {
    MutexLock lock(&mu_);
    known_groups_.erase({leader, key});
  }

  // For what a timer calls, which may be late: false, and nothing done, if the task is going down
  // and its peers with it.
  template <typename Use>
  bool WithPeers(const Use& use) {
    MutexLock lock(&stop_mu_);
    if (!stopped_) use();
    return !stopped_;
  }

  std::function<void()> At(Deadline deadline, std::function<void()> what) const {
    if (options_.at == nullptr) return [] {};
    return options_.at(deadline, std::move(what));
  }

 private:
  class Local final : public CollectivePeer {
   public:
    explicit Local(Manager* manager) : manager_(*manager) {}
    void CompleteGroup(const GroupRequest& request, CancellationManager* cancellation,
                       GroupDone done) override {
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
      status.SetPayload(kWorkerRestartedPayload, absl::Cord());
      return status;
    }
    return errors::InvalidArgument(options_.task, " has no device ", request.src_device);
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

  void AskForStepId(const std::string& leader, int64_t graph_key, int times,
                    StepSequences::Done answer, std::function<bool()> wanted) {
    const StatusOr<CollectivePeer*> peer = Peer(leader);
    if (!peer.ok()) return answer(peer.status());
    (*peer)->GetStepSequence(
        graph_key, nullptr,
        [self = shared_from_this(), leader, graph_key, times, answer = std::move(answer),
         wanted = std::move(wanted)](StatusOr<int64_t> id) {
          if (!id.ok()) {
            return answer(Annotate(id.status(), StrCat("; ", leader, " leads the collectives of ",
                                                       "graph key ", graph_key)));
          }
          if (!self->HasFailed(*id) || times >= kMaxAskAgain) return answer(*id);
          if (!wanted()) return answer(errors::Cancelled("the id is not wanted any more"));
          (void)self->At(
              DeadlineAfter(kAskAgain), [self, leader, graph_key, times, answer, wanted] {
                const bool asked = self->WithPeers(
                    [&] { self->AskForStepId(leader, graph_key, times + 1, answer, wanted); });
                if (!asked) answer(errors::Unavailable(self->options_.task, " is going down"));
              });
        });
  }

  const CollectiveOptions options_;
  Local local_;
  CollectiveDirectory directory_;
  StepSequences sequences_;
  Mutex stop_mu_;  // taken before all others
  bool stopped_ ABSL_GUARDED_BY(stop_mu_) = false;
  mutable Mutex mu_;
  struct StepEntry {
    RefPtr<BufferExchange> exchange;
    bool begun = false;  // here; if not, only others have asked
  };
  absl::flat_hash_map<int64_t, StepEntry> exchanges_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<int64_t, RefPtr<BufferExchange>> failed_ ABSL_GUARDED_BY(mu_);
  std::deque<int64_t> failed_order_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<std::string, int32_t>, std::shared_ptr<const CollectiveGroup>> known_groups_
      ABSL_GUARDED_BY(mu_);
};

// -- Transport --

void StepTransport::Receive(const std::string& key, int64_t num_bytes,
                            const ResolvedCollective& collective, int src_rank, Received received) {
  const CollectiveGroup& group = *collective.group;
  BufferRequest request{step_id_,
                        key,
                        num_bytes,
                        group.members[src_rank].name,
                        group.members[src_rank].incarnation,
                        collective.device};
  auto done = [self = RefPtr<StepTransport>::Share(this), &collective, src_rank,
               received = std::move(received)](const Status& status, const Tensor& piece) {
    if (status.ok()) return received(status, piece);
    // What a cancelled call says is less than why it was cancelled.
    const Status aborted = self->aborted();
    const Status& why = aborted.ok() ? status : aborted;
    received(Annotate(why, StrCat("; ", Describe(collective), " waited for rank ", src_rank, ", ",
                                  collective.group->members[src_rank].name)),
             Tensor());
  };
  const StatusOr<CollectivePeer*> peer = manager_->Peer(group.tasks[src_rank]);
  if (!peer.ok()) return done(peer.status(), Tensor());
  (*peer)->ReceiveBuffer(request, &cancellation_, std::move(done));
}

void StepTransport::Abort(const Status& reason) {
  const auto self = RefPtr<StepTransport>::Share(this);
  exchange_->StartAbort(AbortedBy(reason));
  cancellation_.StartCancel(reason);
}

void StepTransport::Watch(const CollectiveGroup& group, const std::string& device) {
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::string& task = group.tasks[rank];
    if (task == manager_->options().task) continue;
    {
      MutexLock lock(&mu_);
      if (!watched_.try_emplace(task, true).second) continue;
    }
    // Nobody provides this: the call ends when the task or its step does.
    BufferRequest request{step_id_,
                          StrCat("watch:", device),
                          0,
                          group.members[rank].name,
                          group.members[rank].incarnation,
                          device};
    auto ended = [self = RefPtr<StepTransport>::Share(this), name = group.members[rank].name](
                     const Status& status, const Tensor&) {
      if (self->watching_.IsCancelled()) return;
      if (errors::IsUnavailable(status) || errors::IsFailedPrecondition(status) ||
          TellsOfAbort(status)) {
        self->Abort(Annotate(status, StrCat("; ", name, " is a member of the collective")));
      }
    };
    manager_->WithPeers([&] {
      const StatusOr<CollectivePeer*> peer = manager_->Peer(task);
      if (!peer.ok()) return;  // whoever waits for it has said so
      (*peer)->ReceiveBuffer(request, &watching_, std::move(ended));
    });
  }
}

// -- Steps --

// An op's timeout, and the time from which on its members are looked after.
struct StepCollectives::Timers {
  std::function<void()> cancel_timeout, cancel_watch;
  Mutex mu;
  Status timed_out ABSL_GUARDED_BY(mu);

  // What the op ends with.
  Status End(const Status& status) {
    if (cancel_timeout != nullptr) cancel_timeout();
    if (cancel_watch != nullptr) cancel_watch();
    MutexLock lock(&mu);
    if (status.ok() || timed_out.ok()) return status;
    // What the timeout ended says what it was waiting for.
    std::string_view text = Message(status);
    if (text.starts_with(kAbortedBy)) text.remove_prefix(kAbortedBy.size());
    return text.starts_with(Message(timed_out)) ? WithMessage(timed_out, text) : timed_out;
  }
};

std::shared_ptr<StepCollectives::Timers> StepCollectives::StartTimers(
    const CollectiveParams& params, const char* doing) {
  auto timers = std::make_shared<Timers>();
  if (params.timeout_seconds <= 0) return timers;
  const auto timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::min(params.timeout_seconds, 1e9)));
  Status late = errors::DeadlineExceeded("Collective has timed out ", doing, " after ",
                                         params.timeout_seconds, " s: ", Describe(params));
  timers->cancel_timeout = manager_->At(
      DeadlineAfter(timeout),
      [transport = transport_, weak = std::weak_ptr<Timers>(timers), late = std::move(late)] {
        if (const auto timers = weak.lock()) {
          MutexLock lock(&timers->mu);
          timers->timed_out = late;
        }
        transport->Abort(late);
      });
  return timers;
}

struct StepCollectives::Resolution {
  CollectiveParams params;
  DeviceAttributes device;
  CollectivePeer* leader = nullptr;
  std::shared_ptr<Timers> timers;
  std::shared_ptr<ResolvedCollective> result;
  Resolved resolved;
};

void StepCollectives::ResolveAsync(const CollectiveParams& params, const Device& device,
                                   Resolved resolved) {
  auto r = std::make_shared<Resolution>();
  r->params = params;
  r->device = device.attributes();
  r->resolved = std::move(resolved);
  r->timers = StartTimers(params, "waiting for other workers");
  if (Status aborted = transport_->aborted(); !aborted.ok()) {
    return FinishResolution(r, std::move(aborted));
  }
  const StatusOr<CollectivePeer*> leader = manager_->Peer(leader_);
  if (!leader.ok()) return FinishResolution(r, leader.status());
  r->leader = *leader;
  auto known = manager_->FindGroup(leader_, params.group_key);
  if (known != nullptr && known->size() == params.group_size) {
    const int rank = known->RankOf(r->device.name);
    if (rank >= 0 && known->members[rank].incarnation == r->device.incarnation) {
      return ResolveInstance(r, std::move(known));
    }
  }
  const GroupRequest request{params.group_key, params.group_size, params.kind, r->device};
  r->leader->CompleteGroup(request, transport_->cancellation(),
                           [self = RefPtr<StepCollectives>::Share(this),
                            r](StatusOr<std::shared_ptr<const CollectiveGroup>> group) {
                             if (!group.ok()) return self->FinishResolution(r, group.status());
                             self->manager_->RememberGroup(self->leader_, *group);
                             self->ResolveInstance(r, *std::move(group));
                           });
}

void StepCollectives::ResolveInstance(const std::shared_ptr<Resolution>& r,
                                      std::shared_ptr<const CollectiveGroup> group) {
  const CollectiveParams& params = r->params;
  r->result = std::make_shared<ResolvedCollective>();
  r->result->params = params;
  r->result->device = r->device.name;
  r->result->rank = group->RankOf(r->device.name);
  r->result->group = std::move(group);
  if (r->result->rank < 0) {
    return FinishResolution(r, errors::Internal("device ", r->device.name,
                                                " is no member of the group that its leader made"));
  }
  InstanceRequest request;
  request.node = params.node;
  request.kind = params.kind;
  request.dtype = params.dtype;
  request.shape = params.shape;
  request.group_key = params.group_key;
  request.group_size = params.group_size;
  request.instance_key = params.instance_key;
  const bool by_step = params.anew_each_step && r->result->group->tells_steps;
  request.step_id = by_step ? transport_->step_id() : 0;
  request.device_type = r->device.device_type;
  request.subdiv_offsets = params.subdiv_offsets;
  request.device = r->device.name;
  request.is_source = params.is_source;
  if (params.kind == CollectiveKind::kReduce) {
    request.reduction = ReductionName(params.merge, params.final);
  }
  r->leader->CompleteInstance(
      request, transport_->cancellation(),
      [self = RefPtr<StepCollectives>::Share(this), r](StatusOr<int> source_rank) {
        if (!source_rank.ok()) return self->FinishResolution(r, source_rank.status());
        ResolvedCollective& result = *r->result;
        result.source_rank = *source_rank;
        const CollectiveParams& params = result.params;
        if (params.kind == CollectiveKind::kBroadcast &&
            (*source_rank < 0 || *source_rank >= result.group->size() ||
             params.is_source != (*source_rank == result.rank))) {
          return self->FinishResolution(
              r, errors::Internal("the leader ", self->leader_, " says that rank ", *source_rank,
                                  " is the source of the broadcast"));
        }
        std::vector<int32_t> offsets = {0};
        if (params.kind == CollectiveKind::kReduce) {
          offsets = params.subdiv_offsets;
          if (offsets.empty()) {
            const int64_t bytes =
                params.shape.num_elements() * static_cast<int64_t>(DataTypeSize(params.dtype));
            offsets = ChooseOffsets(*result.group, bytes, params.max_subdivs_per_device);
          }
        }
        StatusOr<std::vector<Ring>> rings = MakeRings(*result.group, result.rank, offsets);
        if (rings.ok()) result.rings = *std::move(rings);
        self->FinishResolution(r, rings.status());
      });
}

void StepCollectives::FinishResolution(const std::shared_ptr<Resolution>& r, Status status) {
  const Status aborted = transport_->aborted();
  // What a cancelled call says is more than why it was cancelled: who was missing.
  if (!status.ok() && !aborted.ok() && !TellsOfAbort(status)) {
    status = Annotate(aborted, StrCat("; ", Message(status)));
  }
  status = r->timers->End(status);
  const Resolved resolved = std::move(r->resolved);
  if (status.ok()) {
    return resolved(std::shared_ptr<const ResolvedCollective>(std::move(r->result)));
  }
  manager_->ForgetGroup(leader_, r->params.group_key);
  status = Annotate(status, StrCat("; ", r->device.name, " in ", Describe(r->params),
                                   " with the leader ", leader_));
  transport_->Abort(status);
  resolved(status);
}

bool StepCollectives::IsCurrent(const ResolvedCollective& resolved) const {
  return manager_->FindGroup(leader_, resolved.params.group_key) == resolved.group;
}

void StepCollectives::RunAsync(std::shared_ptr<const ResolvedCollective> resolved,
                               const std::string& key, const Tensor& input, const Tensor& output,
                               Done done) {
  const CollectiveKind kind = resolved->params.kind;
  CollectiveRun run = NewRun(std::move(resolved), key, input, output, std::move(done));
  switch (kind) {
    case CollectiveKind::kReduce:
      return RunRingReduce(std::move(run));
    case CollectiveKind::kGather:
      return RunRingGather(std::move(run));
    case CollectiveKind::kBroadcast:
      return RunTreeBroadcast(std::move(run));
  }
}

std::shared_ptr<StepCollectives::Timers> StepCollectives::StartRunTimers(
    const std::shared_ptr<const ResolvedCollective>& resolved) {
  auto timers = StartTimers(resolved->params, "during execution");
  if (resolved->group->devices_per_task.size() > 1) {
    timers->cancel_watch = manager_->At(DeadlineAfter(manager_->options().patience),
                                        [transport = transport_, resolved] {
                                          transport->Watch(*resolved->group, resolved->device);
                                        });
  }
  return timers;
}

CollectiveRun StepCollectives::NewRun(std::shared_ptr<const ResolvedCollective> resolved,
                                      std::string key, const Tensor& input, const Tensor& output,
                                      Done done) {
  auto timers = StartRunTimers(resolved);
  CollectiveRun run;
  run.collective = resolved;
  run.key = std::move(key);
  run.input = input;
  run.output = output;
  run.transport = transport_;
  run.pool = manager_->options().pool;
  run.done = [self = RefPtr<StepCollectives>::Share(this), timers, resolved,
              done = std::move(done)](const Status& status) {
    const Status ended = timers->End(status);
    if (!ended.ok()) self->manager_->ForgetGroup(self->leader_, resolved->params.group_key);
    done(ended);
  };
  return run;
}

// Notes are padded with zeros.
Tensor NoteOf(std::string_view text) {
  Tensor note(kUint8, Shape({static_cast<int64_t>(CollectiveExecutor::kMaxNote) + 1}));
  std::memset(note.raw_data(), 0, note.num_bytes());
  std::memcpy(note.raw_data(), text.data(), std::min(text.size(), CollectiveExecutor::kMaxNote));
  return note;
}
std::string TextOf(const Tensor& note) {
  const auto* const text = static_cast<const char*>(note.raw_data());
  return std::string(text, strnlen(text, note.num_bytes()));
}

void StepCollectives::AgreeAsync(std::shared_ptr<const ResolvedCollective> resolved,
                                 const std::string& key, std::string note, Decide decide,
                                 Agreed agreed) {
  const Tensor input = NoteOf(note), output = NoteOf("");
  auto ended = [output, agreed = std::move(agreed)](const Status& status) {
    if (!status.ok()) return agreed(status);
    agreed(TextOf(output));
  };
  RunAgreement(NewRun(std::move(resolved), StrCat(key, ":agree"), input, output, std::move(ended)),
               [decide = std::move(decide)](const std::vector<Tensor>& notes, const Tensor& to) {
                 std::vector<std::string> texts;
                 for (const Tensor& one : notes) texts.push_back(TextOf(one));
                 const Tensor answer = NoteOf(decide(texts));
                 std::memcpy(to.raw_data(), answer.raw_data(), to.num_bytes());
               });
}

class StepCollectives::RunGuard final : public Guard,
                                        public std::enable_shared_from_this<RunGuard> {
 public:
  RunGuard(RefPtr<StepCollectives> step, std::shared_ptr<const ResolvedCollective> resolved,
           std::function<void(const Status&)> stop)
      : step_(std::move(step)), resolved_(std::move(resolved)), stop_(std::move(stop)) {}

  ~RunGuard() override { (void)timers_->End(OkStatus()); }

  void Start() {
    timers_ = step_->StartRunTimers(resolved_);
    CancellationManager* const cancellation = step_->transport_->cancellation();
    token_ = cancellation->NextToken();
    const auto stop = [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->Stop();
    };
    if (!cancellation->RegisterCallback(token_, stop)) stop();
  }

  Status End(const Status& status) override {
    {
      MutexLock lock(&mu_);
      stop_ = nullptr;
    }
    (void)step_->transport_->cancellation()->TryDeregisterCallback(token_);
    if (status.ok()) return timers_->End(status);
    const Status said = Annotate(status, StrCat("; ", Describe(*resolved_)));
    const Status before = step_->transport_->aborted();
    step_->transport_->Abort(said);
    // Why everything has ended says more than that this did.
    return Failed(before.ok() ? said : before);
  }

 private:
  void Stop() {
    std::function<void(const Status&)> stop;
    {
      MutexLock lock(&mu_);
      stop.swap(stop_);
    }
    if (stop == nullptr) return;
    stop(Failed(Annotate(step_->transport_->aborted(), StrCat("; ", Describe(*resolved_)))));
  }
  Status Failed(const Status& why) {
    step_->manager_->ForgetGroup(step_->leader_, resolved_->params.group_key);
    return timers_->End(why);
  }

  const RefPtr<StepCollectives> step_;
  const std::shared_ptr<const ResolvedCollective> resolved_;
  std::shared_ptr<Timers> timers_;
  CancellationManager::Token token_ = 0;
  Mutex mu_;
  std::function<void(const Status&)> stop_ ABSL_GUARDED_BY(mu_);
};

std::shared_ptr<CollectiveExecutor::Guard> StepCollectives::GuardRun(
    std::shared_ptr<const ResolvedCollective> resolved, std::function<void(const Status&)> stop) {
  auto guard = std::make_shared<RunGuard>(RefPtr<StepCollectives>::Share(this), std::move(resolved),
                                          std::move(stop));
  guard->Start();
  return guard;
}

}  // namespace

std::shared_ptr<CollectiveManager> NewCollectiveManager(CollectiveOptions options) {
  return std::make_shared<Manager>(std::move(options));
}

}  // namespace millrace
