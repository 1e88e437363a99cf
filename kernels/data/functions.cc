// SPDX-License-Identifier: Apache-2.0
// Data sets that call functions of the graph for each element: map, filter, flat_map, interleave.
#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/background.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data/batch.h"
#include "kernels/data/captured_function.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"
#include "kernels/data/parallel.h"

namespace millrace {
namespace {

constexpr int64_t kMostParallelCalls = 64, kMostOpen = 4096;

class FunctionDataset : public DatasetValue {
 public:
  FunctionDataset(DatasetPtr input, FunctionPtr function, std::vector<DataType> types)
      : DatasetValue(std::move(types), /*blocks=*/true),
        input_(std::move(input)),
        function_(std::move(function)) {}

 protected:
  const DatasetPtr input_;
  const FunctionPtr function_;
};

// A walk through the input with the function at hand.
class FunctionIterator : public DatasetWalk {
 public:
  FunctionIterator(DatasetWalkPtr walk, FunctionPtr function)
      : walk_(std::move(walk)), function_(std::move(function)) {}

 protected:
  const DatasetWalkPtr walk_;
  const FunctionPtr function_;
};

class MapDataset : public FunctionDataset {
 public:
  using FunctionDataset::FunctionDataset;
  int64_t cardinality() const override {
    return function_->may_end() ? kUnknown : input_->cardinality();
  }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(std::move(walk), function_));
  }

 private:
  class Iterator : public FunctionIterator {
   public:
    using FunctionIterator::FunctionIterator;
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      args_.clear();
      MR_RETURN_IF_ERROR(walk_->Next(call, &args_, end));
      if (*end) return OkStatus();
      Status status = function_->CallWith(call, &args_, element);
      *end = function_->Ended(&status);
      return status;
    }

   private:
    DatasetElement args_;
  };
};

class FilterDataset : public FunctionDataset {
 public:
  using FunctionDataset::FunctionDataset;
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(std::move(walk), function_));
  }

 private:
  class Iterator : public FunctionIterator {
   public:
    using FunctionIterator::FunctionIterator;
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      for (;;) {
        element->clear();
        MR_RETURN_IF_ERROR(walk_->Next(call, element, end));
        if (*end) return OkStatus();
        DatasetElement results;
        MR_RETURN_IF_ERROR(function_->Call(call, *element, &results));
        if (results.size() != 1 || results[0].dtype() != kBool || results[0].num_elements() != 1) {
          return errors::InvalidArgument("Filter predicate `f` must return a scalar bool.");
        }
        if (results[0].scalar<bool>()) return OkStatus();
      }
    }
  };
};

// Each element becomes a data set; `cycle` of them are open at once and give `block` elements in
// turn, each with `ahead` elements made before they are asked for. With 1 and no limit: FlatMap.
class InterleaveDataset : public FunctionDataset {
 public:
  InterleaveDataset(DatasetPtr input, FunctionPtr function, std::vector<DataType> types,
                    int64_t cycle, int64_t block, int64_t ahead)
      : FunctionDataset(std::move(input), std::move(function), std::move(types)),
        cycle_(cycle),
        block_(block),
        ahead_(ahead) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(
        new Iterator(RefPtr<const InterleaveDataset>::Share(this), std::move(walk)));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    Iterator(RefPtr<const InterleaveDataset> dataset, DatasetWalkPtr walk)
        : dataset_(std::move(dataset)), walk_(std::move(walk)), open_(dataset_->cycle_) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      // A whole round without an element, and no further input: the end.
      for (std::size_t empty = 0; empty < open_.size();) {
        DatasetWalkPtr& current = open_[at_];
        if (!current && !ended_) {
          DatasetElement args;
          MR_RETURN_IF_ERROR(walk_->Next(call, &args, &ended_));
          if (!ended_) MR_RETURN_IF_ERROR(Open(call, std::move(args), &current));
        }
        if (!current) {
          ++empty;
          MoveOn();
          continue;
        }
        empty = 0;
        bool ended = false;
        MR_RETURN_IF_ERROR(current->Next(call, element, &ended));
        if (ended) {
          // The next input takes its place in the cycle.
          current.reset();
          given_ = 0;
          if (open_.size() > 1) MoveOn();
          continue;
        }
        if (++given_ >= dataset_->block_) MoveOn();
        return OkStatus();
      }
      *end = true;
      return OkStatus();
    }

   private:
    Status Open(const DatasetCall& call, DatasetElement args, DatasetWalkPtr* current) {
      DatasetElement results;
      MR_RETURN_IF_ERROR(dataset_->function_->Call(call, std::move(args), &results));
      MR_ASSIGN_OR_RETURN(DatasetPtr inner, ResultDataset(results));
      MR_RETURN_IF_ERROR(CheckResultTypes("`f`", *inner, *dataset_));
      if (dataset_->ahead_ > 0) {
        inner =
            NewPrefetchDataset(std::move(inner), dataset_->ahead_, dataset_->function_->device());
      }
      MR_ASSIGN_OR_RETURN(*current, inner->NewIterator());
      return OkStatus();
    }
    void MoveOn() {
      at_ = (at_ + 1) % open_.size();
      given_ = 0;
    }

    const RefPtr<const InterleaveDataset> dataset_;
    const DatasetWalkPtr walk_;
    std::vector<DatasetWalkPtr> open_;
    std::size_t at_ = 0;
    int64_t given_ = 0;
    bool ended_ = false;
  };

  const int64_t cycle_, block_, ahead_;
};

// --- Kernels ----------------------------------------------------------------------------------

// Input i as a number of calls at a time; -1 leaves it to us.
StatusOr<int64_t> Parallelism(const KernelContext& ctx, int i) {
  MR_ASSIGN_OR_RETURN(const int64_t calls, IntScalar(ctx.input(i), "num_parallel_calls"));
  if (calls == -1) return std::clamp<int64_t>(std::thread::hardware_concurrency(), 2, 16);
  if (calls > 0) return std::min(calls, kMostParallelCalls);
  return errors::InvalidArgument("num_parallel_calls must be greater than zero, got ", calls);
}

// What these have in common: input 0 is a data set, then come the captured values.
class FunctionDatasetKernel : public DatasetKernel {
 public:
  explicit FunctionDatasetKernel(KernelConstruction& c)
      : DatasetKernel(c),
        captured_(static_cast<int>(c.attr<std::vector<DataType>>("Targuments").size())),
        types_(c.attr<std::vector<DataType>>("output_types")),
        function_(c.attr<FunctionName>(c.attrs().Has("predicate") ? "predicate" : "f"),
                  /*on_one_device=*/true),
        advice_(c.attrs().GetOr<std::string>("_element_advice", "")),
        may_end_(!c.attrs().GetOr<bool>("preserve_cardinality", true)) {}

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) final {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(FunctionPtr function,
                        Capture(ctx, function_, 1, captured_, advice_, may_end_));
    return MakeFrom(ctx, std::move(input), std::move(function));
  }
  // `captured_ + 1` is the first input behind the captured values.
  virtual StatusOr<RefPtr<DatasetValue>> MakeFrom(KernelContext& ctx, DatasetPtr input,
                                                  FunctionPtr function) = 0;

  const int captured_;
  const std::vector<DataType> types_;

 private:
  const LazyFunction function_;
  const std::string advice_;  // of data sets of names of files (data/pipeline/image_folder.cc)
  const bool may_end_;        // false where there is no such attribute
};

// MapDataset and FilterDataset.
template <typename D>
class EachKernel : public FunctionDatasetKernel {
 public:
  using FunctionDatasetKernel::FunctionDatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> MakeFrom(KernelContext&, DatasetPtr input,
                                          FunctionPtr function) override {
    return RefPtr<DatasetValue>(MakeRef<D>(std::move(input), std::move(function), types_));
  }
};

// ParallelMapDataset and its V2.
class ParallelMapKernel : public FunctionDatasetKernel {
 public:
  using FunctionDatasetKernel::FunctionDatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> MakeFrom(KernelContext& ctx, DatasetPtr input,
                                          FunctionPtr function) override {
    MR_ASSIGN_OR_RETURN(const int64_t calls, Parallelism(ctx, captured_ + 1));
    return NewParallelMapDataset(std::move(input), std::move(function), types_, calls);
  }
};

class MapAndBatchKernel : public FunctionDatasetKernel {
 public:
  using FunctionDatasetKernel::FunctionDatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> MakeFrom(KernelContext& ctx, DatasetPtr input,
                                          FunctionPtr function) override {
    MR_ASSIGN_OR_RETURN(const int64_t size, IntScalar(ctx.input(captured_ + 1), "batch_size"));
    if (size <= 0) return errors::InvalidArgument("batch_size must be greater than zero.");
    MR_ASSIGN_OR_RETURN(const int64_t calls, Parallelism(ctx, captured_ + 2));
    const Tensor& drop = ctx.input(captured_ + 3);
    if (drop.num_elements() != 1) {
      return errors::InvalidArgument("drop_remainder must be a bool scalar");
    }
    return NewBatchDataset(
        NewParallelMapDataset(std::move(input), std::move(function), types_, calls), size,
        drop.scalar<bool>());
  }
};

// FlatMapDataset, InterleaveDataset, ParallelInterleaveDatasetV2 and V4.
class InterleaveKernel : public FunctionDatasetKernel {
 public:
  using FunctionDatasetKernel::FunctionDatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> MakeFrom(KernelContext& ctx, DatasetPtr input,
                                          FunctionPtr function) override {
    int64_t cycle = 1, block = INT64_MAX, ahead = 0;
    const int next = captured_ + 1;
    if (ctx.num_inputs() > next) {
      MR_ASSIGN_OR_RETURN(cycle, IntScalar(ctx.input(next), "cycle_length"));
      MR_ASSIGN_OR_RETURN(block, IntScalar(ctx.input(next + 1), "block_length"));
      if (cycle == -1) cycle = std::clamp<int64_t>(std::thread::hardware_concurrency(), 2, 16);
      if (cycle <= 0 || cycle > kMostOpen || block <= 0) {
        return errors::InvalidArgument("`cycle_length` must be in [1, ", kMostOpen,
                                       "] and `block_length` greater than zero, got ", cycle,
                                       " and ", block);
      }
    }
    if (ctx.num_inputs() > next + 2) {
      MR_ASSIGN_OR_RETURN(const int64_t calls, Parallelism(ctx, ctx.num_inputs() - 1));
      // Each open data set has a thread.
      if (calls > 1 && cycle <= kMostParallelCalls) ahead = std::min<int64_t>(block, 16);
    }
    return RefPtr<DatasetValue>(MakeRef<InterleaveDataset>(std::move(input), std::move(function),
                                                           types_, cycle, block, ahead));
  }
};

// Every element is made when it is asked for, or up to a number of them ahead.
class PrefetchKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(int64_t buffer, IntScalar(ctx.input(1), "buffer_size"));
    if (buffer < -1) {
      return errors::InvalidArgument("buffer_size must be >= 0 or -1, got ", buffer);
    }
    if (buffer == -1) buffer = 8;  // as we like
    if (buffer == 0) return RefPtr<DatasetValue>::Share(const_cast<DatasetValue*>(input.get()));
    return NewPrefetchDataset(std::move(input), buffer, ctx.device());
  }
};

// A state that a function makes anew with each element, and gives in the end. A function may say by
// OutOfRange that it has seen enough.
class ReduceKernel : public Kernel {
 public:
  explicit ReduceKernel(KernelConstruction& c)
      : Kernel(c),
        num_states_(static_cast<int>(c.attr<std::vector<DataType>>("Tstate").size())),
        types_(c.attr<std::vector<DataType>>("output_types")),
        shapes_(c.attr<std::vector<PartialShape>>("output_shapes")),
        function_(c.attr<FunctionName>("f"), /*on_one_device=*/true) {
    if (types_ != c.attr<std::vector<DataType>>("Tstate") || types_.size() != shapes_.size()) {
      c.SetError(errors::InvalidArgument(
          "output_types, output_shapes and Tstate of a ReduceDataset must have as many entries, ",
          "and the same types"));
    }
  }
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    ComputeInBackground(ctx.device(), done, [this, &ctx] { return Reduce(ctx); });
  }

 private:
  Status Reduce(KernelContext& ctx) const {
    MR_ASSIGN_OR_RETURN(const DatasetPtr input, InputDataset(ctx, 0));
    const int others = 1 + num_states_;
    MR_ASSIGN_OR_RETURN(const FunctionPtr function,
                        Capture(ctx, function_, others, ctx.num_inputs() - others));
    if (function->result_types() != types_) {
      return errors::InvalidArgument("f of ", name(),
                                     " gives values of other types than the state");
    }
    DatasetElement state;
    for (int i = 0; i < num_states_; ++i) state.push_back(ctx.locked_input(1 + i));
    const DatasetCall call{ctx.allocator(), ctx.cancellation()};
    MR_ASSIGN_OR_RETURN(const DatasetWalkPtr walk, input->NewIterator());
    for (;;) {
      DatasetElement element;
      bool end = false;
      MR_RETURN_IF_ERROR(walk->Next(call, &element, &end));
      if (end) break;
      DatasetElement args = state, results;
      args.insert(args.end(), element.begin(), element.end());
      const Status status = function->CallToEnd(call, std::move(args), &results);
      if (errors::IsOutOfRange(status)) break;
      MR_RETURN_IF_ERROR(status);
      state = std::move(results);
    }
    for (int i = 0; i < num_states_; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (!shapes_[at].IsCompatibleWith(state[at].shape())) {
        return errors::InvalidArgument("component ", i, " of the state has shape ",
                                       state[at].shape().DebugString(), ", declared is ",
                                       shapes_[at].DebugString());
      }
      ctx.SetOutput(i, std::move(state[at]));
    }
    return OkStatus();
  }

  const int num_states_;
  const std::vector<DataType> types_;
  const std::vector<PartialShape> shapes_;
  const LazyFunction function_;
};

}  // namespace

void RegisterFunctionDatasets(KernelRegistry& r) {
  RegisterCpu<EachKernel<MapDataset>>(r, "MapDataset");
  RegisterCpu<EachKernel<FilterDataset>>(r, "FilterDataset");
  RegisterCpu<ParallelMapKernel>(r, "ParallelMapDataset");
  RegisterCpu<ParallelMapKernel>(r, "ParallelMapDatasetV2");
  RegisterCpu<MapAndBatchKernel>(r, "MapAndBatchDataset");
  for (const char* op : {"FlatMapDataset", "InterleaveDataset", "ParallelInterleaveDatasetV2",
                         "ParallelInterleaveDatasetV4"}) {
    RegisterCpu<InterleaveKernel>(r, op);
  }
  RegisterCpu<PrefetchKernel>(r, "PrefetchDataset");
  RegisterCpu<ReduceKernel>(r, "ReduceDataset");
}

}  // namespace millrace
