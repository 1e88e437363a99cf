// SPDX-License-Identifier: Apache-2.0
// Queues of tuples of tensors that live on a device between steps.
#ifndef KERNELS_DATA_FLOW_QUEUE_H_
#define KERNELS_DATA_FLOW_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/cancellation.h"
#include "base/mutex.h"
#include "base/random.h"
#include "device/resource_manager.h"
#include "kernels/state/waiter.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// Thread-safe. Nobody ever blocks: an attempt that cannot be served yet waits in line, and its
// callback runs later, on the thread that made room or brought elements. Attempts of one kind
// are served in the order in which they came. Callbacks run outside the queue's lock.
class Queue : public Resource {
 public:
  enum class Order {
    kFifo,
    kPadding,   // first in, first out; components of a batch are padded to one shape
    kRandom,    // any element, each as likely as the others
    kPriority,  // the smallest first component (int64), then first in, first out
  };
  struct Options {
    Order order = Order::kFifo;
    std::string name, kind;            // for messages: "FIFOQueue 'name' is closed."
    std::vector<DataType> types;       // of the components
    std::vector<PartialShape> shapes;  // one per component, or empty: any shapes
    int64_t capacity = -1;             // negative: no limit
    int64_t min_after_dequeue = 0;     // kRandom: elements that stay while the queue is open
    int64_t seed = 0, seed2 = 0;       // kRandom: both 0 for a random seed
  };
  using Element = std::vector<Tensor>;
  using EnqueueDone = std::function<void(Status)>;
  using DequeueDone = std::function<void(Status, std::vector<Element>)>;

  explicit Queue(Options options);

  const Options& options() const { return options_; }

  // InvalidArgument if the components do not have the queue's types and shapes. In a batch the
  // first axis counts elements and must be equal for all.
  Status CheckElement(const Element& components) const;
  Status CheckBatch(const Element& components) const;

  // Adds the elements one by one as there is room. Ends with Cancelled "... is closed." when
  // the queue was closed before, and with Cancelled when the waiter is cancelled or the queue is
  // closed with cancellation while elements still wait; those that went in stay in.
  void Enqueue(std::vector<Element> elements, const Waiter& waiter, EnqueueDone done);
  // Takes `count` elements, waiting for them. On a closed queue that cannot give so many it
  // ends with OutOfRange "... is closed and has insufficient elements ..." and takes none;
  // `up_to` takes those that are left instead, if there are any.
  void Dequeue(int64_t count, bool up_to, const Waiter& waiter, DequeueDone done);
  // No further elements are accepted. Enqueues that wait are cancelled, or else still served.
  void Close(bool cancel_pending_enqueues);

  bool closed() const;
  int64_t size() const;

  std::string DebugString() const override;
  // Cancels everything that waits.
  void OnRemoved() override;

 private:
  struct EnqueueAttempt {
    int64_t id;
    std::vector<Element> elements;
    std::size_t next;  // the first that is not in the queue yet
    CancellationManager* cancellation;
    CancellationManager::Token token;
    EnqueueDone done;
    std::string node{}, task{};  // of one that had to wait
  };
  struct DequeueAttempt {
    int64_t id;
    std::size_t count;
    bool up_to;
    std::vector<Element> taken;
    CancellationManager* cancellation;
    CancellationManager::Token token;
    DequeueDone done;
    std::string node{}, task{};
  };
  // Callbacks to run once the lock is free.
  using Finished = std::vector<std::function<void()>>;

  void Serve(Finished* finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool ServeEnqueues(Finished* finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool ServeDequeues(Finished* finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Put(Element element) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Element Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives the elements back to the front, in their order.
  void Restore(std::vector<Element> taken) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint32_t NextRandom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Empties the attempt's slot in line.
  static void Finish(EnqueueAttempt attempt, Status status, Finished* finished);
  static void Finish(DequeueAttempt attempt, Status status, Finished* finished);
  void CancelEnqueue(int64_t id);
  void CancelDequeue(int64_t id);
  std::string Named() const;  // "FIFOQueue 'name'"
  // If the attempt is the last in line still: keeps who it is, and says what it waits for.
  // `describe` makes the text.
  template <typename Attempt, typename Describe>
  void NoteWaiting(std::deque<Attempt>* line, int64_t id, const Waiter& waiter, LastCall* last,
                   Describe describe) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable Mutex mu_;
  std::deque<Element> elements_ ABSL_GUARDED_BY(mu_);
  std::deque<EnqueueAttempt> enqueues_ ABSL_GUARDED_BY(mu_);
  std::deque<DequeueAttempt> dequeues_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  LastCall last_enqueue_ ABSL_GUARDED_BY(mu_), last_dequeue_ ABSL_GUARDED_BY(mu_);
  int64_t next_id_ ABSL_GUARDED_BY(mu_) = 0;
  Philox random_ ABSL_GUARDED_BY(mu_);
  Philox::Result random_words_ ABSL_GUARDED_BY(mu_){};
  int random_used_ ABSL_GUARDED_BY(mu_) = 4;
};

}  // namespace millrace

#endif  // KERNELS_DATA_FLOW_QUEUE_H_
