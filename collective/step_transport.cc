#include "collective/step_transport.h"

#include <utility>

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
  const StatusOr<CollectivePeer*> peer = tasks_->Peer(group.tasks[src_rank]);
  if (!peer.ok()) return done(peer.status(), Tensor());
  (*peer)->ReceiveBuffer(request, &cancellation_, std::move(done));
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
