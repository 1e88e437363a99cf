// SPDX-License-Identifier: Apache-2.0
#include "collective/step_collectives.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "base/mutex.h"
#include "collective/collective_errors.h"

namespace millrace {
namespace {

// Notes are padded with zeros.
Tensor NoteOf(std::string_view text) {
  // Bounded: of one small size.
  Tensor note(kUint8, Shape({static_cast<int64_t>(CollectiveExecutor::kMaxNote) + 1}));
  std::memset(note.raw_data(), 0, note.num_bytes());
  std::memcpy(note.raw_data(), text.data(), std::min(text.size(), CollectiveExecutor::kMaxNote));
  return note;
}
std::string TextOf(const Tensor& note) {
  const auto* const text = static_cast<const char*>(note.raw_data());
  return std::string(text, strnlen(text, note.num_bytes()));
}

}  // namespace

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
    if (text.starts_with(kCollectiveAbortedBy)) text.remove_prefix(kCollectiveAbortedBy.size());
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
  timers->cancel_timeout = tasks_->At(
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
  int64_t since_nanos = SteadyNanos();
};

void StepCollectives::ListWaits(std::vector<Wait>* waits) const {
  {
    MutexLock lock(&mu_);
    for (const auto& r : resolving_) {
      Wait& wait = waits->emplace_back();
      wait.kind = Wait::Kind::kCollective;
      wait.node = r->params.node;
      wait.device = r->device.name;
      wait.name = StrCat(r->params.group_key, "/", r->params.instance_key);
      wait.text = StrCat(r->device.name, " in ", Describe(r->params), " waits for all of its ",
                         r->params.group_size, " members to come to the leader ", leader_);
      wait.since_nanos = r->since_nanos;
    }
  }
  transport_->ListWaits(waits);
}

void StepCollectives::ResolveAsync(const CollectiveParams& params, const Device& device,
                                   Resolved resolved) {
  auto r = std::make_shared<Resolution>();
  r->params = params;
  r->device = device.attributes();
  r->resolved = std::move(resolved);
  r->timers = StartTimers(params, "waiting for other workers");
  {
    MutexLock lock(&mu_);
    resolving_.insert(r);
  }
  if (Status aborted = transport_->aborted(); !aborted.ok()) {
    return FinishResolution(r, std::move(aborted));
  }
  const StatusOr<CollectivePeer*> leader = tasks_->Peer(leader_);
  if (!leader.ok()) return FinishResolution(r, leader.status());
  r->leader = *leader;
  auto known = tasks_->FindGroup(leader_, params.group_key);
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
                             self->tasks_->RememberGroup(self->leader_, *group);
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
    if (params.in_rank_order) StrAppend(&request.reduction, " in rank order");
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
  {
    MutexLock lock(&mu_);
    resolving_.erase(r);
  }
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
  tasks_->ForgetGroup(leader_, r->params.group_key);
  status = Annotate(status, StrCat("; ", r->device.name, " in ", Describe(r->params),
                                   " with the leader ", leader_));
  transport_->Abort(status);
  resolved(status);
}

bool StepCollectives::IsCurrent(const ResolvedCollective& resolved) const {
  return tasks_->FindGroup(leader_, resolved.params.group_key) == resolved.group;
}

void StepCollectives::RunAsync(std::shared_ptr<const ResolvedCollective> resolved,
                               const std::string& key, const Tensor& input, const Tensor& output,
                               Done done) {
  const CollectiveKind kind = resolved->params.kind;
  CollectiveRun run = NewRun(std::move(resolved), key, input, output, std::move(done));
  switch (kind) {
    case CollectiveKind::kReduce:
      // A member that is TensorFlow's knows rings only.
      if (run.collective->params.in_rank_order && run.collective->group->tells_steps) {
        return RunRankOrderReduce(std::move(run));
      }
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
    timers->cancel_watch =
        tasks_->At(DeadlineAfter(tasks_->options().patience), [transport = transport_, resolved] {
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
  run.pool = tasks_->options().pool;
  run.done = [self = RefPtr<StepCollectives>::Share(this), timers, resolved,
              done = std::move(done)](const Status& status) {
    const Status ended = timers->End(status);
    if (!ended.ok()) self->tasks_->ForgetGroup(self->leader_, resolved->params.group_key);
    done(ended);
  };
  return run;
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
    step_->tasks_->ForgetGroup(step_->leader_, resolved_->params.group_key);
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

}  // namespace millrace
