// SPDX-License-Identifier: Apache-2.0
// Where the members' pieces of one step meet.
#ifndef COLLECTIVE_BUFFER_EXCHANGE_H_
#define COLLECTIVE_BUFFER_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "base/cancellation.h"
#include "base/mutex.h"
#include "base/string_map.h"
#include "collective/pending.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Under each key one tensor is provided and taken, in either order. Thread-safe; never blocks.
// Callbacks run once, on the thread of whichever side came second, or of the abort.
class BufferExchange : public RefCounted {
 public:
  using Provided = std::function<void(const Status&)>;
  using Taken = std::function<void(const Status&, const Tensor&)>;

  // `done` when the other side holds a reference to the tensor, whose elements must not change
  // before it lets go. Internal if the key was provided before.
  void Provide(const std::string& key, Tensor data, CancellationManager* cancellation,
               Provided done);
  // Internal "Tensor Size Mismatch" if what is there has not `num_bytes` bytes; the provider is
  // told the same. With num_bytes -1 any size will do.
  void Take(const std::string& key, int64_t num_bytes, CancellationManager* cancellation,
            Taken done);
  // Everything that waits, or comes later, ends with `status`. The first abort counts.
  void StartAbort(const Status& status);
  Status aborted() const;  // OK if it has not been
  // Whether any tensor has changed hands; whether anything waits.
  bool used() const;
  bool idle() const;

 private:
  using PendingProvided = Pending<const Status&>;
  using PendingTaken = Pending<const Status&, const Tensor&>;
  // One of the two waits.
  struct Entry {
    Tensor data;
    RefPtr<PendingProvided> provider;
    RefPtr<PendingTaken> taker;
    int64_t num_bytes = 0;  // that the taker wants
  };
  void Meet(const std::string& key, const Tensor& data, int64_t num_bytes,
            PendingProvided* provider, PendingTaken* taker);

  mutable Mutex mu_;
  Status aborted_ ABSL_GUARDED_BY(mu_);
  bool used_ ABSL_GUARDED_BY(mu_) = false;
  StringMap<Entry> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace

#endif  // COLLECTIVE_BUFFER_EXCHANGE_H_
