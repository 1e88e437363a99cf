// SPDX-License-Identifier: Apache-2.0
#include "kernels/data/parallel.h"

#include <memory>
#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/background.h"
#include "kernels/data/pipeline.h"
#include "kernels/data/spare_elements.h"
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
    RingBuffer<Made> made ABSL_GUARDED_BY(mu);
    SpareElements spare ABSL_GUARDED_BY(mu);
    bool ended ABSL_GUARDED_BY(mu) = false;

    void Fill() {
      const DatasetCall call{device->allocator(), &cancellation};
      for (;;) {
        const Status space = LockWhen(&mu, &changed, &cancellation, [this] { return SpaceLeft(); });
        if (!space.ok()) return;
        AssertLocked(&mu);
        Made next;
        next.element = spare.Take();
        mu.Unlock();
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
        MR_RETURN_IF_ERROR(CheckAsked(call));
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
      AssertLocked(&state.mu);
      Made next;
      *end = state.made.empty();
      if (!*end) {
        next = std::move(state.made.front());
        state.made.pop_front();
        state.changed.SignalAll();
        // The vector that came to be filled is the thread's next one.
        element->clear();
        element->swap(next.element);
        state.spare.PutBack(std::move(next.element));
      }
      state.mu.Unlock();
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

}  // namespace

RefPtr<DatasetValue> NewPrefetchDataset(DatasetPtr input, int64_t buffer, Device* device) {
  return MakeRef<PrefetchDataset>(std::move(input), buffer, device);
}

}  // namespace millrace
