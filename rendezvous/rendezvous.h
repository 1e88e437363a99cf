// SPDX-License-Identifier: Apache-2.0
// Where the sends and receives of one step meet.
#ifndef RENDEZVOUS_RENDEZVOUS_H_
#define RENDEZVOUS_RENDEZVOUS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancellation.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// "<src device>;<incarnation, 16 hex digits>;<dst device>;<edge name>;<frame>:<iteration>"
struct RendezvousKey {
  std::string src_device;
  uint64_t src_incarnation = 0;
  std::string dst_device;
  std::string edge_name;
  uint64_t frame_id = 0;
  int64_t iteration = 0;

  std::string ToString() const;
  // InvalidArgument "Invalid  rendezvous key: ..." unless it has exactly this form.
  static StatusOr<RendezvousKey> Parse(std::string_view text);
};

// Per key a FIFO of values and of waiting receivers: a value meets the first receiver.
// Send never blocks; either side may come first. Thread-safe.
class Rendezvous : public RefCounted {
 public:
  // Receives OK, the value and its deadness; or an error. Called exactly once, on the thread
  // of the send, the abort or the receive.
  using RecvDone = std::function<void(const Status& status, const Tensor& value, bool is_dead)>;

  virtual Status Send(std::string_view key, Tensor value, bool is_dead) = 0;
  // Registers with `cancellation` (may be null): Cancelled "RecvAsync is cancelled".
  virtual void RecvAsync(std::string_view key, CancellationManager* cancellation,
                         RecvDone done) = 0;
  // Fails all waiting receives, drops buffered values; later calls get `status`. The first
  // abort wins.
  virtual void StartAbort(const Status& status) = 0;
  // Appends the keys of at most `limit` receives that wait: what a step that is late lacks.
  virtual void ListWaits(std::size_t limit, std::vector<std::string>* keys) const = 0;
};

// A rendezvous within this process.
RefPtr<Rendezvous> NewLocalRendezvous();

}  // namespace millrace

#endif  // RENDEZVOUS_RENDEZVOUS_H_
