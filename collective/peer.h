// SPDX-License-Identifier: Apache-2.0
// What the tasks of a cluster ask of each other for collectives.
#ifndef COLLECTIVE_PEER_H_
#define COLLECTIVE_PEER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "base/cancellation.h"
#include "collective/collective_types.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// A task: this one itself, or a stub. Thread-safe. Every callback is called once, possibly before
// the call returns; cancelling `cancellation` (may be null) ends the call. Unavailable if the task
// cannot be reached or went away.
class CollectivePeer {
 public:
  using GroupDone = std::function<void(StatusOr<std::shared_ptr<const CollectiveGroup>>)>;
  using InstanceDone = std::function<void(StatusOr<int> source_rank)>;  // -1: there is no source
  using SequenceDone = std::function<void(StatusOr<int64_t> next_step_id)>;
  using BufferDone = std::function<void(const Status&, const Tensor& bytes)>;

  virtual ~CollectivePeer() = default;
  // Of the group's leader. Ends when all members have asked.
  virtual void CompleteGroup(const GroupRequest& request, CancellationManager* cancellation,
                             GroupDone done) = 0;
  // Of the group's leader. A broadcast ends when all members have asked.
  virtual void CompleteInstance(const InstanceRequest& request, CancellationManager* cancellation,
                                InstanceDone done) = 0;
  // Of the leader: the id that the next step with this graph key should have.
  virtual void GetStepSequence(int64_t graph_key, CancellationManager* cancellation,
                               SequenceDone done) = 0;
  // Of the task of `request.src_device`. Gives the provided tensor itself, or its bytes.
  virtual void ReceiveBuffer(const BufferRequest& request, CancellationManager* cancellation,
                             BufferDone done) = 0;
};

}  // namespace millrace

#endif  // COLLECTIVE_PEER_H_
