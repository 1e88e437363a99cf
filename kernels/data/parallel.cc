#include "kernels/data/parallel.h"

#include <atomic>
#include <deque>
#include <memory>
#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/background.h"
#include "kernels/data/pipeline.h"
#include "kernels/data/waiting.h"

namespace millrace {
namespace {

Status IteratorIsGone() { return errors::Cancelled("the iterator is gone"); }

class PrefetchDataset : public DatasetValue {
 public:
  PrefetchDataset(DatasetPtr input, int64_t buffer, Device* device)
      : DatasetValue(input->types(), /*blocks=*/true),
        input_(std::move(input)),
        buffer_(buffer),
        device_(device) {}
  int64_t cardinality() const override { return input_->cardinality(); }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(std::move(walk), buffer_, device_));
  }

 private:
  struct Made {
    Status status;
    DatasetElement element;
  };
  // Shared with the thread that fills the buffer: an iterator does not wait for it to end.
  struct State {
    Device* device = nullptr;
    std::size_t buffer = 0;
    DatasetWalkPtr walk;               // of the thread
    CancellationManager cancellation;  // of what the thread waits for
    Mutex mu;
    CondVar changed;
    std::deque<Made> made ABSL_GUARDED_BY(mu);
    bool ended ABSL_GUARDED_BY(mu) = false;

    void Fill() {
      const DatasetCall call{device->allocator(), &cancellation};
      for (;;) {
        const Status space = LockWhen(&mu, &changed, &cancellation, [this] { return SpaceLeft(); });
        if (!space.ok()) return;
        mu.Unlock();
        Made next;
        bool end = false;
        next.status = Guarded([&] { return walk->Next(call, &next.element, &end); });
        if (cancellation.IsCancelled()) return;
        MutexLock lock(&mu);
        if (end) {
          ended = true;
        } else {
          made.push_back(std::move(next));
        }
        changed.SignalAll();
        if (end) return;
      }
    }
    bool SpaceLeft() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return made.size() < buffer; }
    bool HasAnswer() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return ended || !made.empty(); }
  };

  class Iterator : public DatasetWalk, public SkipsElements {
   public:
    Iterator(DatasetWalkPtr walk, int64_t buffer, Device* device)
        : state_(std::make_shared<State>()) {
      state_->device = device;
      state_->buffer = static_cast<std::size_t>(buffer);
      state_->walk = std::move(walk);
    }
    ~Iterator() override { state_->cancellation.StartCancel(IteratorIsGone()); }
    Status Skip(const DatasetCall& call, int64_t count, int64_t* skipped) override {
      // The walk is not the thread's yet.
      if (!started_) return SkipElements(*state_->walk, call, count, skipped);
      for (bool end = false; *skipped < count; ++*skipped) {
        DatasetElement element;
        MR_RETURN_IF_ERROR(Next(call, &element, &end));
        if (end) break;
      }
      return OkStatus();
    }
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      if (!started_) {
        MR_RETURN_IF_ERROR(RunInBackground(state_->device, [state = state_] { state->Fill(); }));
        started_ = true;
      }
      State& state = *state_;
      MR_RETURN_IF_ERROR(LockWhen(&state.mu, &state.changed, call.cancellation,
                                  [&state] { return state.HasAnswer(); }));
      Made next;
      *end = state.made.empty();
      if (!*end) {
        next = std::move(state.made.front());
        state.made.pop_front();
        state.changed.SignalAll();
      }
      state.mu.Unlock();
      *element = std::move(next.element);
      return next.status;
    }
    bool Ready() override {
      MutexLock lock(&state_->mu);
      return state_->HasAnswer();
    }

   private:
    const std::shared_ptr<State> state_;
    bool started_ = false;
  };

  const DatasetPtr input_;
  const int64_t buffer_;
  Device* const device_;
};

class ParallelMapDataset : public DatasetValue {
 public:
  ParallelMapDataset(DatasetPtr input, FunctionPtr function, std::vector<DataType> types,
                     int64_t parallelism)
      : DatasetValue(std::move(types), /*blocks=*/true),
        input_(std::move(input)),
        function_(std::move(function)),
        parallelism_(parallelism) {}
  int64_t cardinality() const override { return input_->cardinality(); }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(std::move(walk), function_, parallelism_));
  }

 private:
  // What the calls of one iterator share. Each may outlive it.
  struct State {
    FunctionPtr function;
    CancellationManager cancellation;
    Mutex mu;
    CondVar changed;
  };
  struct Slot {
    std::atomic<bool> claimed{false};  // by the thread that makes the call
    bool done = false;                 // guarded by the state's lock
    Status status;
    DatasetElement args, results;
  };

  class Iterator : public DatasetWalk {
   public:
    Iterator(DatasetWalkPtr walk, FunctionPtr function, int64_t parallelism)
        : walk_(std::move(walk)),
          parallelism_(static_cast<std::size_t>(parallelism)),
          state_(std::make_shared<State>()) {
      state_->function = std::move(function);
    }
    ~Iterator() override {
      for (const auto& slot : slots_) slot->claimed = true;
      state_->cancellation.StartCancel(IteratorIsGone());
    }

    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      while (!ended_ && slots_.size() < parallelism_) MR_RETURN_IF_ERROR(Begin(call));
      *end = slots_.empty();
      if (*end) return OkStatus();
      const std::shared_ptr<Slot> first = slots_.front();
      State& state = *state_;
      if (!first->claimed.exchange(true)) {
        // No thread has come to it yet, or there is only one call at a time.
        slots_.pop_front();
        return state.function->Call(call, std::move(first->args), element);
      }
      MR_RETURN_IF_ERROR(
          LockWhen(&state.mu, &state.changed, call.cancellation, [&first] { return first->done; }));
      state.mu.Unlock();
      slots_.pop_front();
      *element = std::move(first->results);
      return first->status;
    }

   private:
    // The call for the next element of the input; its error takes the element's place.
    Status Begin(const DatasetCall& call) {
      auto slot = std::make_shared<Slot>();
      slot->status = walk_->Next(call, &slot->args, &ended_);
      if (ended_) return OkStatus();
      if (!slot->status.ok()) {
        if (call.cancellation != nullptr && call.cancellation->IsCancelled()) return slot->status;
        slot->claimed = true;
        slot->done = true;
      }
      slots_.push_back(slot);
      if (slot->done || parallelism_ == 1) return OkStatus();
      Device* const device = state_->function->device();
      // Without a thread the one that asks for the element makes the call.
      const auto make = [state = state_, slot, device] {
        if (slot->claimed.exchange(true)) return;
        const DatasetCall own{device->allocator(), &state->cancellation};
        Status status = Guarded(
            [&] { return state->function->Call(own, std::move(slot->args), &slot->results); });
        MutexLock lock(&state->mu);
        slot->status = std::move(status);
        slot->done = true;
        state->changed.SignalAll();
      };
      RunInBackground(device, make).IgnoreError();
      return OkStatus();
    }

    const DatasetWalkPtr walk_;
    const std::size_t parallelism_;
    const std::shared_ptr<State> state_;
    std::deque<std::shared_ptr<Slot>> slots_;
    bool ended_ = false;
  };

  const DatasetPtr input_;
  const FunctionPtr function_;
  const int64_t parallelism_;
};

}  // namespace

RefPtr<DatasetValue> NewPrefetchDataset(DatasetPtr input, int64_t buffer, Device* device) {
  return MakeRef<PrefetchDataset>(std::move(input), buffer, device);
}

RefPtr<DatasetValue> NewParallelMapDataset(DatasetPtr input, FunctionPtr function,
                                           std::vector<DataType> types, int64_t parallelism) {
  return MakeRef<ParallelMapDataset>(std::move(input), std::move(function), std::move(types),
                                     parallelism);
}

}  // namespace millrace
