// SPDX-License-Identifier: Apache-2.0
// A function of the elements of a data set, several calls at a time.
//
// Threads ("workers") fill a row of results ahead of whoever asks. Handing an element from one
// thread to another costs more than a small function: so a worker makes one element after the
// other, goes when the row is full, and comes back when half of it has been taken; a small function
// gets one worker only; and whoever finds the row empty makes an element itself.
// Slots of the row, and the vectors in them, are used again: a warm map takes no memory of its own.
#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/background.h"
#include "kernels/data/parallel.h"
#include "kernels/data/spare_elements.h"
#include "kernels/data/waiting.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

// Calls shorter than this gain nothing by a second worker.
constexpr std::chrono::nanoseconds kSmallCall = std::chrono::microseconds(20);
// Results of small calls that may lie ahead, and their bytes. (As many as calls may be under way
// may always.)
constexpr std::size_t kMostAhead = 64, kMostBytesAhead = std::size_t{1} << 20;

// One element of the row.
struct Slot {
  bool done = false;
  Status status;
  DatasetElement results;
  std::size_t bytes = 0;
};

// What an iterator and its workers share. Workers may outlive the iterator.
class Row : public std::enable_shared_from_this<Row> {
 public:
  Row(DatasetWalkPtr walk, FunctionPtr function, int64_t parallelism)
      : function_(std::move(function)),
        parallelism_(static_cast<std::size_t>(parallelism)),
        walk_(std::move(walk)) {}

  void Cancel() { cancellation_.StartCancel(errors::Cancelled("the iterator is gone")); }

  Status Next(const DatasetCall& call, DatasetElement* element, bool* end) {
    MR_RETURN_IF_ERROR(LockWhen(&mu_, &changed_, call.cancellation, [this] { return CanGoOn(); }));
    AssertLocked(&mu_);
    return TakeOrMake(call, element, end);
  }

  bool Ready() {
    MutexLock lock(&mu_);
    return slots_.empty() ? ended_ && !pulling_ : slots_.front()->done;
  }

 private:
  // Whoever asks need not wait for a worker.
  bool CanGoOn() {
    AssertLocked(&mu_);
    return slots_.empty() ? !pulling_ : slots_.front()->done;
  }
  bool HasTurn() {
    AssertLocked(&mu_);
    return !pulling_ || ended_;
  }
  bool HasSpace() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return slots_.size() < parallelism_ || (slots_.size() < kMostAhead && bytes_ < kMostBytesAhead);
  }
  std::size_t WantedWorkers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return call_time_ < kSmallCall ? 1 : parallelism_;
  }

  // With the lock, which it gives back.
  Status TakeOrMake(const DatasetCall& call, DatasetElement* element, bool* end)
      ABSL_UNLOCK_FUNCTION(mu_) {
    *end = false;
    if (!slots_.empty()) {
      std::unique_ptr<Slot> first = std::move(slots_.front());
      slots_.pop_front();
      bytes_ -= first->bytes;
      // The vector that came to be filled is that of a slot to come.
      element->clear();
      element->swap(first->results);
      Status status = std::move(first->status);
      first->status = OkStatus();
      first->done = false;
      first->bytes = 0;
      spare_.push_back(std::move(first));
      StartWorkerAndUnlock();
      *end = function_->Ended(&status);
      return status;
    }
    if (ended_) {
      mu_.Unlock();
      *end = true;
      return OkStatus();
    }
    pulling_ = true;
    mu_.Unlock();
    args_.clear();
    const Status status = Guarded([&] { return walk_->Next(call, &args_, end); });
    mu_.Lock();
    pulling_ = false;
    if (*end) ended_ = true;
    changed_.SignalAll();
    StartWorkerAndUnlock();
    if (!status.ok() || *end) return status;
    Status called = function_->CallWith(call, &args_, element);
    *end = function_->Ended(&called);
    return called;
  }

  // One worker more or less. As long as there are any, the row holds on to itself: what is run in
  // the background is a pointer alone, which takes no memory each time. What RemoveWorker gives is
  // to be let go of without the lock.
  void AddWorker() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (workers_ == 0) self_ = shared_from_this();
    ++workers_;
  }
  std::shared_ptr<Row> RemoveWorker() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::shared_ptr<Row> self;
    if (--workers_ == 0) self.swap(self_);
    return self;
  }

  // One more where there is work for it and, after the row was full, half of that is free. Workers
  // that find elements bring up the next one: few elements get few threads.
  void StartWorkerAndUnlock() ABSL_UNLOCK_FUNCTION(mu_) {
    const bool wanted = parallelism_ > 1 && !ended_ && workers_ < WantedWorkers() && HasSpace() &&
                        (slots_.size() < parallelism_ || slots_.size() <= kMostAhead / 2);
    if (wanted) AddWorker();
    mu_.Unlock();
    if (!wanted) return;
    if (RunInBackground(function_->device(), [this] { Work(); }).ok()) return;
    // Without a thread whoever asks for the elements makes them.
    mu_.Lock();
    const std::shared_ptr<Row> self = RemoveWorker();
    mu_.Unlock();
  }

  void Work() {
    mu_.Lock();
    DatasetElement args = spare_args_.Take();
    mu_.Unlock();
    while (MakeOne(&args)) continue;
    args.clear();
    mu_.Lock();
    spare_args_.PutBack(std::move(args));
    const std::shared_ptr<Row> self = RemoveWorker();
    mu_.Unlock();
  }

  // One element, by a worker. False: the worker is to go.
  bool MakeOne(DatasetElement* args) {
    const DatasetCall call{function_->device()->allocator(), &cancellation_};
    const Status turn = LockWhen(&mu_, &changed_, &cancellation_, [this] { return HasTurn(); });
    if (!turn.ok()) return false;
    AssertLocked(&mu_);
    if (ended_ || !HasSpace() || workers_ > WantedWorkers()) {
      mu_.Unlock();
      return false;
    }
    pulling_ = true;
    mu_.Unlock();
    args->clear();
    bool end = false;
    Status status = Guarded([&] { return walk_->Next(call, args, &end); });
    if (cancellation_.IsCancelled()) return false;
    Slot* made = nullptr;
    mu_.Lock();
    pulling_ = false;
    if (end) {
      ended_ = true;
    } else {
      made = AddSlot();
    }
    changed_.SignalAll();
    StartWorkerAndUnlock();
    if (end) return false;
    // An error of the input takes the element's place.
    if (status.ok()) status = Compute(call, args, &made->results);
    Finish(made, std::move(status));
    return true;
  }

  // At the end of the row, one that was used before if there is any.
  Slot* AddSlot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::unique_ptr<Slot> slot;
    if (spare_.empty()) {
      slot = std::make_unique<Slot>();
    } else {
      slot = std::move(spare_.back());
      spare_.pop_back();
    }
    Slot* const added = slot.get();
    slots_.push_back(std::move(slot));
    return added;
  }

  Status Compute(const DatasetCall& call, DatasetElement* args, DatasetElement* results) {
    const Clock::time_point start = Clock::now();
    Status status = Guarded([&] { return function_->CallWith(call, args, results); });
    const auto took = std::chrono::nanoseconds(Clock::now() - start);
    MutexLock lock(&mu_);
    // Unknown at first: then it may be long.
    call_time_ = call_time_ == kUnknown ? took : (3 * call_time_ + took) / 4;
    return status;
  }

  void Finish(Slot* made, Status status) {
    std::size_t bytes = 0;
    for (const Tensor& tensor : made->results) bytes += tensor.num_bytes();
    MutexLock lock(&mu_);
    made->status = std::move(status);
    made->bytes = bytes;
    made->done = true;
    bytes_ += bytes;
    if (slots_.front().get() == made) changed_.SignalAll();
  }

  static constexpr std::chrono::nanoseconds kUnknown = std::chrono::hours(1);

  const FunctionPtr function_;
  const std::size_t parallelism_;
  const DatasetWalkPtr walk_;  // of whoever has set pulling_
  CancellationManager cancellation_;
  Mutex mu_;
  CondVar changed_;
  DatasetElement args_;                                            // of whoever asks
  SpareElements spare_args_ ABSL_GUARDED_BY(mu_);                  // of workers
  RingBuffer<std::unique_ptr<Slot>> slots_ ABSL_GUARDED_BY(mu_);   // oldest first
  std::vector<std::unique_ptr<Slot>> spare_ ABSL_GUARDED_BY(mu_);  // empty ones
  std::size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;                     // in slots that are done
  std::size_t workers_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<Row> self_ ABSL_GUARDED_BY(mu_);  // while there are workers
  bool pulling_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::chrono::nanoseconds call_time_ ABSL_GUARDED_BY(mu_) = kUnknown;  // smoothed
};

class ParallelMapDataset : public DatasetValue {
 public:
  ParallelMapDataset(DatasetPtr input, FunctionPtr function, std::vector<DataType> types,
                     int64_t parallelism)
      : DatasetValue(std::move(types), /*blocks=*/true),
        input_(std::move(input)),
        function_(std::move(function)),
        parallelism_(parallelism) {}
  int64_t cardinality() const override {
    return function_->may_end() ? kUnknown : input_->cardinality();
  }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(std::move(walk), function_, parallelism_));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    Iterator(DatasetWalkPtr walk, const FunctionPtr& function, int64_t parallelism)
        : row_(std::make_shared<Row>(std::move(walk), function, parallelism)) {}
    ~Iterator() override { row_->Cancel(); }
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      return row_->Next(call, element, end);
    }
    bool Ready() override { return row_->Ready(); }

   private:
    const std::shared_ptr<Row> row_;
  };

  const DatasetPtr input_;
  const FunctionPtr function_;
  const int64_t parallelism_;
};

}  // namespace

RefPtr<DatasetValue> NewParallelMapDataset(DatasetPtr input, FunctionPtr function,
                                           std::vector<DataType> types, int64_t parallelism) {
  return MakeRef<ParallelMapDataset>(std::move(input), std::move(function), std::move(types),
                                     parallelism);
}

}  // namespace millrace
