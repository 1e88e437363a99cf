// SPDX-License-Identifier: Apache-2.0
// Iterators that deal the elements of one data set out to several devices, each of which asks for
// its own.
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/background.h"
#include "kernels/common/handle_kernel.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/step_resource.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"
#include "kernels/data/iterator_ops.h"
#include "kernels/data/waiting.h"

namespace millrace {
namespace {

constexpr std::size_t kMostShards = 4096;

// Element i goes to shard i modulo the number of shards. Whoever finds nothing for his shard walks
// on and keeps what is for others, as far as their buffers go. Thread-safe.
class MultiDeviceIterator : public Resource {
 public:
  MultiDeviceIterator(std::vector<DataType> types, std::size_t shards)
      : types_(std::move(types)), num_shards_(shards) {}

  const std::vector<DataType>& types() const { return types_; }
  std::size_t num_shards() const { return num_shards_; }

  // From the beginning of `dataset`; the number of this beginning. A call of Next under way ends on
  // the old one.
  StatusOr<int64_t> Start(const DatasetValue& dataset, int64_t max_buffer) {
    if (dataset.types() != types_) {
      return errors::InvalidArgument("Number or types of components do not match between the ",
                                     "iterator and the data set that it is made from");
    }
    auto deal = std::make_shared<Deal>();
    {
      MutexLock lock(&deal->mu);
      deal->shards.resize(num_shards_);
    }
    deal->max_buffer = static_cast<std::size_t>(max_buffer);
    MR_ASSIGN_OR_RETURN(deal->walk, dataset.NewIterator());
    MutexLock lock(&mu_);
    deal_.swap(deal);  // the old one ends without the lock
    return ++incarnation_;
  }

  // The next element of a shard; waits until others have taken theirs. OutOfRange at the end,
  // InvalidArgument for a shard or a beginning that is not this iterator's, Cancelled.
  Status Next(const DatasetCall& call, int64_t shard, int64_t incarnation,
              DatasetElement* element) {
    if (shard < 0 || shard >= static_cast<int64_t>(num_shards_)) {
      return errors::InvalidArgument("shard_num is ", shard, ", the iterator has ", num_shards_,
                                     " shards");
    }
    std::shared_ptr<Deal> deal;
    {
      MutexLock lock(&mu_);
      if (deal_ == nullptr || incarnation != incarnation_) {
        return errors::InvalidArgument("Invalid incarnation id. Provided: ", incarnation,
                                       "; Expected: ", incarnation_);
      }
      deal = deal_;
    }
    return deal->Next(call, static_cast<std::size_t>(shard), element);
  }

  std::string DebugString() const override {
    return StrCat("Iterator over ", types_.size(), " components for ", num_shards_, " devices");
  }

 private:
  struct Made {
    Status status;
    DatasetElement element;
  };
  // One walk and what it has given.
  struct Deal {
    // LockWhen locks, which the analysis does not see.
    Status Next(const DatasetCall& call, std::size_t shard,
                DatasetElement* element) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      for (;;) {
        MR_RETURN_IF_ERROR(LockWhen(&mu, &changed, call.cancellation,
                                    [&] { return HasAnswer(shard) || CanWalk(shard); }));
        if (HasAnswer(shard)) return Take(shard, element);
        busy = true;
        mu.Unlock();
        Made made;
        bool end = false;
        made.status = Guarded([&] { return walk->Next(call, &made.element, &end); });
        MutexLock lock(&mu);
        busy = false;
        changed.SignalAll();
        // Whoever's step ends takes nothing from others.
        if (errors::IsCancelled(made.status)) return made.status;
        if (end) {
          ended = true;
        } else {
          shards[turn].push_back(std::move(made));
          turn = (turn + 1) % shards.size();
        }
      }
    }
    bool HasAnswer(std::size_t shard) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return !shards[shard].empty() || ended;
    }
    bool CanWalk(std::size_t shard) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return !busy && (turn == shard || shards[turn].size() < max_buffer);
    }
    // Locked by LockWhen; unlocks.
    Status Take(std::size_t shard, DatasetElement* element) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      Made made;
      const bool is_end = shards[shard].empty();
      if (!is_end) {
        made = std::move(shards[shard].front());
        shards[shard].pop_front();
        changed.SignalAll();
      }
      mu.Unlock();
      if (is_end) return errors::OutOfRange("End of sequence");
      *element = std::move(made.element);
      return made.status;
    }

    Mutex mu;
    CondVar changed;
    DatasetWalkPtr walk;  // of whoever has set `busy`
    std::size_t max_buffer = 1;
    std::vector<std::deque<Made>> shards ABSL_GUARDED_BY(mu);
    std::size_t turn ABSL_GUARDED_BY(mu) = 0;
    bool busy ABSL_GUARDED_BY(mu) = false;
    bool ended ABSL_GUARDED_BY(mu) = false;
  };

  const std::vector<DataType> types_;
  const std::size_t num_shards_;
  Mutex mu_;
  std::shared_ptr<Deal> deal_ ABSL_GUARDED_BY(mu_);
  int64_t incarnation_ ABSL_GUARDED_BY(mu_) = 0;
};

// What MultiDeviceIterator and AnonymousMultiDeviceIteratorV3 are made with.
struct IteratorShape {
  explicit IteratorShape(KernelConstruction& c)
      : types(c.attr<std::vector<DataType>>("output_types")),
        shards(c.attr<std::vector<std::string>>("devices").size()) {
    if (shards == 0 || shards > kMostShards) {
      c.SetError(errors::InvalidArgument("an iterator for ", shards, " devices; it can be for 1 ",
                                         "to ", kMostShards));
    }
  }
  RefPtr<MultiDeviceIterator> Make() const { return MakeRef<MultiDeviceIterator>(types, shards); }

  const std::vector<DataType> types;
  const std::size_t shards;
};

class MultiDeviceIteratorKernel : public HandleKernel<MultiDeviceIterator> {
 public:
  explicit MultiDeviceIteratorKernel(KernelConstruction& c) : HandleKernel(c), shape_(c) {}

 protected:
  StatusOr<RefPtr<MultiDeviceIterator>> Make() override { return shape_.Make(); }
  Status CheckSame(const MultiDeviceIterator& existing) const override {
    if (existing.types() == shape_.types && existing.num_shards() == shape_.shards) {
      return OkStatus();
    }
    return errors::InvalidArgument("Shared iterator '", resource_name(),
                                   "' exists with other types or for other devices");
  }

 private:
  const IteratorShape shape_;
};

class AnonymousMultiDeviceIteratorKernel : public Kernel {
 public:
  explicit AnonymousMultiDeviceIteratorKernel(KernelConstruction& c) : Kernel(c), shape_(c) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor handle,
                        AddStepResource(ctx, "multi_device_iterator", shape_.Make()));
    ctx.SetOutput(0, std::move(handle));
    // The older form also gives what deletes it, which is asked for nothing.
    if (ctx.num_outputs() > 1) ctx.SetOutput(1, VariantTensor(nullptr));
    return OkStatus();
  }

 private:
  const IteratorShape shape_;
};

class DeleteMultiDeviceIteratorKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override { return DeleteByHandle<MultiDeviceIterator>(ctx); }
};

class MultiDeviceIteratorInitKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const DatasetPtr dataset, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(const RefPtr<MultiDeviceIterator> iterator,
                        LookupHandle<MultiDeviceIterator>(ctx, 1));
    MR_ASSIGN_OR_RETURN(const int64_t max_buffer, IntScalar(ctx.input(2), "max_buffer_size"));
    if (max_buffer <= 0) {
      return errors::InvalidArgument("max_buffer_size must be greater than zero, got ", max_buffer);
    }
    MR_ASSIGN_OR_RETURN(const int64_t incarnation, iterator->Start(*dataset, max_buffer));
    ctx.SetOutput(0, Tensor::Scalar<int64_t>(incarnation));
    return OkStatus();
  }
};

class MultiDeviceIteratorGetNextKernel : public Kernel {
 public:
  explicit MultiDeviceIteratorGetNextKernel(KernelConstruction& c) : Kernel(c), declared_(c) {}
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    ComputeInBackground(ctx.device(), done, [this, &ctx] { return Give(ctx); });
  }

 private:
  Status Give(KernelContext& ctx) const {
    MR_ASSIGN_OR_RETURN(const RefPtr<MultiDeviceIterator> iterator,
                        LookupHandle<MultiDeviceIterator>(ctx, 0));
    MR_ASSIGN_OR_RETURN(const int64_t shard, IntScalar(ctx.input(1), "shard_num"));
    MR_ASSIGN_OR_RETURN(const int64_t incarnation, IntScalar(ctx.input(2), "incarnation_id"));
    MR_RETURN_IF_ERROR(declared_.CheckTypes(iterator->types(), name()));
    DatasetElement element;
    MR_RETURN_IF_ERROR(
        iterator->Next({ctx.allocator(), ctx.cancellation()}, shard, incarnation, &element));
    MR_RETURN_IF_ERROR(declared_.CheckShapes(element));
    for (std::size_t i = 0; i < element.size(); ++i) {
      ctx.SetOutput(static_cast<int>(i), std::move(element[i]));
    }
    return OkStatus();
  }

  const DeclaredComponents declared_;
};

}  // namespace

void RegisterMultiDeviceIterators(KernelRegistry& r) {
  RegisterCpu<MultiDeviceIteratorKernel>(r, "MultiDeviceIterator");
  RegisterCpu<AnonymousMultiDeviceIteratorKernel>(r, "AnonymousMultiDeviceIteratorV3");
  RegisterCpu<AnonymousMultiDeviceIteratorKernel>(r, "AnonymousMultiDeviceIterator");
  RegisterCpu<DeleteMultiDeviceIteratorKernel>(r, "DeleteMultiDeviceIterator");
  RegisterCpu<MultiDeviceIteratorInitKernel>(r, "MultiDeviceIteratorInit");
  RegisterCpu<MultiDeviceIteratorGetNextKernel>(r, "MultiDeviceIteratorGetNextFromShard");
  RegisterCpu<IteratorToStringKernel<MultiDeviceIterator>>(r, "MultiDeviceIteratorToStringHandle");
  RegisterCpu<IteratorFromStringKernel<MultiDeviceIterator>>(r,
                                                             "MultiDeviceIteratorFromStringHandle");
}

}  // namespace millrace
