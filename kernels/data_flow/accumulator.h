// SPDX-License-Identifier: Apache-2.0
// Accumulators: they add up the gradients that workers bring and hand out their mean, the
// heart of synchronous training. Rules as TensorFlow's: docs and tests state them.
#ifndef KERNELS_DATA_FLOW_ACCUMULATOR_H_
#define KERNELS_DATA_FLOW_ACCUMULATOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancellation.h"
#include "base/mutex.h"
#include "device/resource_manager.h"
#include "kernels/state/update_ledger.h"
#include "kernels/state/waiter.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "tensor/allocator.h"

namespace millrace {

// Thread-safe; never blocks. Callbacks run outside the accumulator's lock, on the thread whose
// call made them possible.
class Accumulator : public Resource {
 public:
  struct Options {
    std::string name;
    DataType dtype = kFloat;
    PartialShape shape;
    bool mean = true;  // else the sum
    RefPtr<UpdateLedger> ledger = nullptr;
    UpdateLedger::Entry* account = nullptr;  // in the ledger; null: it is not counted
  };
  // What a take gives: the average; or indices, values and shape of a sparse one.
  using TakeDone = std::function<void(Status, std::vector<Tensor>)>;

  Accumulator(Options options, Allocator* allocator)
      : options_(std::move(options)), allocator_(allocator) {}

  const Options& options() const { return options_; }
  virtual bool sparse() const = 0;

  // Adds a gradient (the tensors of the op's inputs, still in their slots: a buffer that
  // nobody else shares may be taken over). If local_step is below the accumulator's global
  // step the gradient is stale and dropped, unread, without an error. InvalidArgument if its
  // type or shape does not fit. `origin` says whose gradient it is. If it names its `worker`, one
  // for each step is held: a second one, of a step that was begun again, is dropped without an
  // error. A worker has one session at a time: once a later one has brought gradients in its name,
  // those of an earlier one are FailedPrecondition, naming both.
  Status Apply(int64_t local_step, std::span<const Tensor* const> gradient,
               const StepOrigin& origin = {}, std::string_view worker = {});
  // The worker will bring another gradient of the step, which counts like its first.
  void AllowAgain(std::string_view worker);

  // Once `num_required` gradients are there: gives the mean over all that are there, forgets
  // them and moves the global step on by one. Takes are served in the order in which they
  // came. InvalidArgument if num_required < 1; Cancelled when the waiter is cancelled first.
  void Take(int64_t num_required, const Waiter& waiter, TakeDone done);

  int64_t num_accumulated() const;
  // Later gradients must have at least this step. Going back is allowed, with a warning.
  void SetGlobalStep(int64_t step);

  std::string DebugString() const override;
  // Cancels the takes that wait.
  void OnRemoved() override;

 protected:
  // The first gradient after a take replaces what is there, later ones are added.
  virtual Status Add(std::span<const Tensor* const> gradient, bool first)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) = 0;
  // The average over `count` gradients; leaves nothing behind.
  virtual StatusOr<std::vector<Tensor>> TakeAverage(int64_t count)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) = 0;

  const Options options_;
  Allocator* const allocator_;
  mutable Mutex mu_;

 private:
  struct Attempt {
    int64_t id, num_required;
    CancellationManager* cancellation;
    CancellationManager::Token token;
    TakeDone done;
  };
  using Finished = std::vector<std::function<void()>>;
  // What is known of a task that has brought gradients.
  struct Pusher {
    std::string task;
    int64_t local_step = 0, nanos = 0;  // of its last one
  };

  // Whose gradients are among those that are held, where they say so.
  struct Held {
    std::string worker;
    int64_t local_step = 0, session = 0;
  };

  // Who brings gradients in the name of a worker.
  struct Bringer {
    std::string worker;
    int64_t session = 0;     // the latest
    std::string text;        // what it is called
    std::string other = "";  // the one before it, if it has brought gradients, too
    bool is_second = false;  // its gradient of a step was dropped: the other one's is held
  };

  // What became of a gradient, or of all that were held.
  void Count(const StepOrigin& origin, UpdateFate fate, int64_t age) {
    if (options_.ledger) options_.ledger->Push(options_.account, origin, fate, age);
  }
  void Settle(UpdateFate fate) {
    if (options_.ledger) options_.ledger->Settle(options_.account, fate);
  }
  const Held* FindHeld(std::string_view worker, int64_t local_step) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The worker's, once it is known that no later session brings gradients in its name. Null: it
  // does not say which session it is of.
  StatusOr<Bringer*> FindBringer(std::string_view worker, const StepOrigin& origin)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NotePusher(std::string_view task, int64_t local_step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Completes what a take says that waits for so many.
  void DescribeTake(int64_t num_required, Wait* wait) const;
  void Serve(Finished* finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Finish(Attempt attempt, Status status, std::vector<Tensor> outputs,
                     Finished* finished);
  void Cancel(int64_t id);

  int64_t global_step_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t count_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t next_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Attempt> attempts_ ABSL_GUARDED_BY(mu_);
  std::vector<Pusher> pushers_ ABSL_GUARDED_BY(mu_);
  std::vector<Held> held_ ABSL_GUARDED_BY(mu_);
  std::vector<Bringer> bringers_ ABSL_GUARDED_BY(mu_);
};

// Gradients are one tensor each, all of one shape.
RefPtr<Accumulator> NewDenseAccumulator(Accumulator::Options options, Allocator* allocator);

// Gradients are indices (int64, ascending), one row of values per index, and the dense shape
// (may be empty: not known). Rows are merged by index, and each is averaged over the
// gradients that had it.
RefPtr<Accumulator> NewSparseAccumulator(Accumulator::Options options, Allocator* allocator);

}  // namespace millrace

#endif  // KERNELS_DATA_FLOW_ACCUMULATOR_H_
