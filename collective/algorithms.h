// SPDX-License-Identifier: Apache-2.0
// The collectives themselves, over a transport that they do not know.
#ifndef COLLECTIVE_ALGORITHMS_H_
#define COLLECTIVE_ALGORITHMS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "collective/collective_executor.h"

namespace millrace {

// Pieces between the members of one step. Thread-safe; callbacks are called once.
class CollectiveTransport : public RefCounted {
 public:
  using Sent = std::function<void(const Status&)>;
  using Received = std::function<void(const Status&, const Tensor& piece)>;

  // `sent` when the other member, or the wire, holds a reference to the piece.
  virtual void Send(const std::string& key, Tensor piece, Sent sent) = 0;
  // The piece itself if it lies in this task.
  virtual void Receive(const std::string& key, int64_t num_bytes,
                       const ResolvedCollective& collective, int src_rank, Received received) = 0;
  // Ends everything that waits with an error.
  virtual void Abort(const Status& reason) = 0;
};

struct CollectiveRun {
  std::shared_ptr<const ResolvedCollective> collective;
  std::string key;
  Tensor input, output;
  RefPtr<CollectiveTransport> transport;
  ThreadPool* pool = nullptr;  // for arithmetic on large pieces; null: where they arrive
  CollectiveExecutor::Done done;
};

// The piece with number c starts at member c and goes around once, gathering every member's part:
// at the member before c it is complete. Then it goes around once more. So the order of the
// operations depends on the piece alone, and all members get the same bits.
void RunRingReduce(CollectiveRun run);
// Every member adds up some pieces, which all others send it as they have them, in the order of the
// ranks, and sends them the results: as many bytes as around the ring, in two steps. The order of
// the operations is the same for all elements, and 16-bit floats are rounded once.
void RunRankOrderReduce(CollectiveRun run);
// Every member's part goes around once.
void RunRingGather(CollectiveRun run);
void RunTreeBroadcast(CollectiveRun run);
// See CollectiveExecutor::AgreeAsync. Input and output are bytes, of the same size at all members.
using DecideBytes = std::function<void(const std::vector<Tensor>& inputs, const Tensor& output)>;
void RunAgreement(CollectiveRun run, DecideBytes decide);

}  // namespace millrace

#endif  // COLLECTIVE_ALGORITHMS_H_
