// SPDX-License-Identifier: Apache-2.0
// What another task does for the collectives of this one, asked for over the wire.
#ifndef DISTRIBUTED_RUNTIME_STUB_REMOTE_COLLECTIVES_H_
#define DISTRIBUTED_RUNTIME_STUB_REMOTE_COLLECTIVES_H_

#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "collective/peer.h"
#include "transport/channel.h"

namespace millrace {

// Thread-safe. A leader that has never answered may still be starting: calls wait for it, up to
// kStart; one that has is not waited for.
class RemoteCollectives final : public CollectivePeer {
 public:
  // `channel` outlives its own calls' use of this object.
  RemoteCollectives(std::string task, Channel* channel)
      : task_(std::move(task)), channel_(channel) {}

  void CompleteGroup(const GroupRequest& request, CancellationManager* cancellation,
                     GroupDone done) override;
  void CompleteInstance(const InstanceRequest& request, CancellationManager* cancellation,
                        InstanceDone done) override;
  void GetStepSequence(int64_t graph_key, CancellationManager* cancellation,
                       SequenceDone done) override;
  void ReceiveBuffer(const BufferRequest& request, CancellationManager* cancellation,
                     BufferDone done) override;

  static constexpr std::chrono::seconds kStart{60};

 private:
  // `use` gets the answer, or the status.
  template <typename Response, typename Use>
  void AskLeader(const char* method, WireWriter request, CancellationManager* cancellation,
                 Use use);
  template <typename Response, typename Use>
  void Ask(const char* method, WireWriter request, CancellationManager* cancellation, Use use);

  const std::string task_;
  Channel* const channel_;
  std::atomic<bool> has_answered_{false};
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_STUB_REMOTE_COLLECTIVES_H_
