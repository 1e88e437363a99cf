// SPDX-License-Identifier: Apache-2.0
#include "collective/step_transport.h"

#include <utility>

#include "base/clock.h"
#include "collective/collective_errors.h"

namespace millrace {

void StepTransport::Receive(const std::string& key, int64_t num_bytes,
                            const ResolvedCollective& collective, int src_rank, Received received) {
  const CollectiveGroup& group = *collective.group;
  BufferRequest request{step_id_,
                        key,
                        num_bytes,
                        group.members[src_rank].name,
                        group.members[src_rank].incarnation,
                        collective.device};
  int64_t id = 0;
  {
    MutexLock lock(&mu_);
    id = next_pending_++;
    pending_[id] = {&collective, src_rank, SteadyNanos()};
  }
  auto done = [self = RefPtr<StepTransport>::Share(this), &collective, src_rank, id,
               received = std::move(received)](const Status& status, const Tensor& piece) {
    {
      MutexLock lock(&self->mu_);
      self->pending_.erase(id);
    }
    if (status.ok()) return received(status, piece);
    // What a cancelled call says is less than why it was cancelled.
    const Status aborted = self->aborted();
    const Status& why = aborted.ok() ? status : aborted;
    received(Annotate(why, StrCat("; ", Describe(collective), " waited for rank ", src_rank, ", ",
                                  collective.group->members[src_rank].name)),
             Tensor());
  };
  const StatusOr<CollectivePeer*> peer = tasks_->Peer(group.tasks[src_rank]);
  if (!peer.ok()) return done(peer.status(), Tensor());
  (*peer)->ReceiveBuffer(request, &cancellation_, std::move(done));
}

void StepTransport::ListWaits(std::vector<Wait>* waits) const {
  MutexLock lock(&mu_);
  for (const auto& [id, pending] : pending_) {
    const ResolvedCollective& collective = *pending.collective;
    Wait& wait = waits->emplace_back();
    wait.kind = Wait::Kind::kCollective;
    wait.node = collective.params.node;
    wait.name = StrCat(collective.params.group_key, "/", collective.params.instance_key);
    wait.peer = collective.group->tasks[pending.src_rank];
    wait.text = StrCat(Describe(collective), " waits for rank ", pending.src_rank, ", ",
                       collective.group->members[pending.src_rank].name);
    wait.since_nanos = pending.since_nanos;
  }
}

void StepTransport::Abort(const Status& reason) {
  const auto self = RefPtr<StepTransport>::Share(this);
  exchange_->StartAbort(CollectiveAbortedBy(reason));
  cancellation_.StartCancel(reason);
}

void StepTransport::Watch(const CollectiveGroup& group, const std::string& device) {
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::string& task = group.tasks[rank];
    if (task == tasks_->options().task) continue;
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
    tasks_->WithPeers([&] {
      const StatusOr<CollectivePeer*> peer = tasks_->Peer(task);
      if (!peer.ok()) return;  // whoever waits for it has said so
      (*peer)->ReceiveBuffer(request, &watching_, std::move(ended));
    });
  }
}

}  // namespace millrace
