// SPDX-License-Identifier: Apache-2.0
// Data sets with a memory: scans, windows, groups, choices among several inputs.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/common/nesting.h"
#include "kernels/data/captured_function.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"

namespace millrace {
namespace {

// What may be kept at a time, where a function or an input says how much.
constexpr int64_t kMostKept = int64_t{1} << 31;

// Elements that are there already.
class HeldDataset : public DatasetValue, public HoldsObjects {
 public:
  HeldDataset(std::vector<DataType> types, std::vector<DatasetElement> elements)
      : DatasetValue(std::move(types)), elements_(std::move(elements)) {
    for (const DatasetElement& element : elements_) {
      for (const Tensor& tensor : element) within_ = std::max(within_, NestingWithin(tensor));
    }
  }
  int nesting() const override { return within_ + 1; }
  int64_t cardinality() const override { return static_cast<int64_t>(elements_.size()); }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    return DatasetWalkPtr(new Iterator(RefPtr<const HeldDataset>::Share(this)));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    explicit Iterator(RefPtr<const HeldDataset> dataset) : dataset_(std::move(dataset)) {}
    Status Next(const DatasetCall&, DatasetElement* element, bool* end) override {
      *end = at_ >= dataset_->elements_.size();
      if (!*end) *element = dataset_->elements_[at_++];
      return OkStatus();
    }

   private:
    const RefPtr<const HeldDataset> dataset_;
    std::size_t at_ = 0;
  };

  const std::vector<DatasetElement> elements_;
  int within_ = 0;  // their nesting
};

StatusOr<bool> Truth(const DatasetElement& results, std::string_view what) {
  if (results.size() != 1 || results[0].dtype() != kBool || results[0].num_elements() != 1) {
    return errors::InvalidArgument(what, " must return a scalar bool.");
  }
  return results[0].scalar<bool>();
}

StatusOr<int64_t> Number(const DatasetElement& results, std::string_view what) {
  if (results.size() != 1 || results[0].dtype() != kInt64 || results[0].num_elements() != 1) {
    return errors::InvalidArgument(what, " must return a scalar int64.");
  }
  return results[0].scalar<int64_t>();
}

// As long as a function says so.
class TakeWhileDataset : public DatasetValue {
 public:
  TakeWhileDataset(DatasetPtr input, FunctionPtr predicate)
      : DatasetValue(input->types(), /*blocks=*/true),
        input_(std::move(input)),
        predicate_(std::move(predicate)) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(std::move(walk), predicate_));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    Iterator(DatasetWalkPtr walk, FunctionPtr predicate)
        : walk_(std::move(walk)), predicate_(std::move(predicate)) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      *end = ended_;
      if (ended_) return OkStatus();
      MR_RETURN_IF_ERROR(walk_->Next(call, element, end));
      if (*end) return OkStatus();
      DatasetElement results;
      MR_RETURN_IF_ERROR(predicate_->Call(call, *element, &results));
      MR_ASSIGN_OR_RETURN(const bool goes_on, Truth(results, "the predicate of take_while"));
      *end = ended_ = !goes_on;
      if (ended_) element->clear();
      return OkStatus();
    }

   private:
    const DatasetWalkPtr walk_;
    const FunctionPtr predicate_;
    bool ended_ = false;
  };

  const DatasetPtr input_;
  const FunctionPtr predicate_;
};

// function(state, element) gives the next state and an element.
class ScanDataset : public DatasetValue {
 public:
  ScanDataset(DatasetPtr input, FunctionPtr function, DatasetElement state,
              std::vector<DataType> types)
      : DatasetValue(std::move(types), /*blocks=*/true),
        input_(std::move(input)),
        function_(std::move(function)),
        state_(std::move(state)) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(RefPtr<const ScanDataset>::Share(this), std::move(walk)));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    Iterator(RefPtr<const ScanDataset> dataset, DatasetWalkPtr walk)
        : dataset_(std::move(dataset)), walk_(std::move(walk)), state_(dataset_->state_) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      DatasetElement next;
      MR_RETURN_IF_ERROR(walk_->Next(call, &next, end));
      if (*end) return OkStatus();
      DatasetElement args = state_, results;
      args.insert(args.end(), next.begin(), next.end());
      Status status = dataset_->function_->Call(call, std::move(args), &results);
      *end = dataset_->function_->Ended(&status);
      if (*end || !status.ok()) return status;
      const std::size_t kept = state_.size();
      if (results.size() != kept + dataset_->types().size()) {
        return errors::InvalidArgument("the function of scan must give ", kept, " + ",
                                       dataset_->types().size(), " values, not ", results.size());
      }
      for (std::size_t i = 0; i < kept; ++i) {
        if (results[i].dtype() != state_[i].dtype()) {
          return errors::InvalidArgument("the state of scan changes its type");
        }
      }
      std::move(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(kept),
                state_.begin());
      element->assign(results.begin() + static_cast<std::ptrdiff_t>(kept), results.end());
      return OkStatus();
    }

   private:
    const RefPtr<const ScanDataset> dataset_;
    const DatasetWalkPtr walk_;
    DatasetElement state_;
  };

  const DatasetPtr input_;
  const FunctionPtr function_;
  const DatasetElement state_;
};

// Every `shift` elements a data set of up to `size`, `stride` apart, for each component.
class WindowDataset : public DatasetValue {
 public:
  WindowDataset(DatasetPtr input, int64_t size, int64_t shift, int64_t stride, bool drop)
      : DatasetValue(std::vector<DataType>(input->types().size(), kVariant), input->blocks()),
        input_(std::move(input)),
        size_(size),
        shift_(shift),
        stride_(stride),
        drop_(drop) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(RefPtr<const WindowDataset>::Share(this), std::move(walk)));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    Iterator(RefPtr<const WindowDataset> dataset, DatasetWalkPtr walk)
        : dataset_(std::move(dataset)), walk_(std::move(walk)) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      const WindowDataset& d = *dataset_;
      const int64_t span = (d.size_ - 1) * d.stride_ + 1;
      while (!ended_ && static_cast<int64_t>(held_.size()) < span) {
        DatasetElement next;
        MR_RETURN_IF_ERROR(walk_->Next(call, &next, &ended_));
        if (ended_) break;
        if (skip_ > 0) {
          --skip_;
        } else {
          held_.push_back(std::move(next));
        }
      }
      *end = held_.empty() || (d.drop_ && static_cast<int64_t>(held_.size()) < span);
      if (*end) return OkStatus();
      for (std::size_t c = 0; c < d.types().size(); ++c) {
        std::vector<DatasetElement> window;
        for (int64_t i = 0; i < span && i < static_cast<int64_t>(held_.size()); i += d.stride_) {
          window.push_back({held_[static_cast<std::size_t>(i)][c]});
        }
        element->push_back(VariantTensor(
            MakeRef<HeldDataset>(std::vector<DataType>{d.input_->types()[c]}, std::move(window))));
      }
      const auto gone = std::min<int64_t>(d.shift_, static_cast<int64_t>(held_.size()));
      held_.erase(held_.begin(), held_.begin() + gone);
      skip_ = d.shift_ - gone;
      return OkStatus();
    }

   private:
    const RefPtr<const WindowDataset> dataset_;
    const DatasetWalkPtr walk_;
    std::deque<DatasetElement> held_;
    int64_t skip_ = 0;
    bool ended_ = false;
  };

  const DatasetPtr input_;
  const int64_t size_, shift_, stride_;
  const bool drop_;
};

// Elements with one key are kept until there are as many as the key's window takes; what is left
// goes at the end, in the order of the keys.
class GroupByWindowDataset : public DatasetValue {
 public:
  struct Functions {
    FunctionPtr key, reduce, window_size;
  };
  GroupByWindowDataset(DatasetPtr input, Functions functions, std::vector<DataType> types)
      : DatasetValue(std::move(types), /*blocks=*/true),
        input_(std::move(input)),
        functions_(std::move(functions)) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(
        new Iterator(RefPtr<const GroupByWindowDataset>::Share(this), std::move(walk)));
  }

 private:
  struct Group {
    int64_t window = 0;  // 0: not asked yet
    std::vector<DatasetElement> elements;
  };
  class Iterator : public DatasetWalk {
   public:
    Iterator(RefPtr<const GroupByWindowDataset> dataset, DatasetWalkPtr walk)
        : dataset_(std::move(dataset)), walk_(std::move(walk)) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      for (;;) {
        if (current_) {
          bool ended = false;
          MR_RETURN_IF_ERROR(current_->Next(call, element, &ended));
          if (!ended) return OkStatus();
          current_.reset();
        }
        if (!ended_) {
          DatasetElement next;
          MR_RETURN_IF_ERROR(walk_->Next(call, &next, &ended_));
          if (!ended_) MR_RETURN_IF_ERROR(Keep(call, std::move(next)));
          continue;
        }
        *end = groups_.empty();
        if (*end) return OkStatus();
        MR_RETURN_IF_ERROR(Open(call, groups_.begin()->first));
      }
    }

   private:
    Status Keep(const DatasetCall& call, DatasetElement next) {
      const Functions& f = dataset_->functions_;
      DatasetElement results;
      MR_RETURN_IF_ERROR(f.key->Call(call, next, &results));
      MR_ASSIGN_OR_RETURN(const int64_t key, Number(results, "`key_func`"));
      Group& group = groups_[key];
      if (group.window == 0) {
        const StatusOr<int64_t> size = WindowSize(call, key);
        if (!size.ok()) {
          groups_.erase(key);
          return size.status();
        }
        group.window = *size;
      }
      group.elements.push_back(std::move(next));
      if (static_cast<int64_t>(group.elements.size()) < group.window) return OkStatus();
      return Open(call, key);
    }
    StatusOr<int64_t> WindowSize(const DatasetCall& call, int64_t key) const {
      DatasetElement results;
      MR_RETURN_IF_ERROR(
          dataset_->functions_.window_size->Call(call, {Tensor::Scalar<int64_t>(key)}, &results));
      MR_ASSIGN_OR_RETURN(const int64_t size, Number(results, "`window_size_func`"));
      if (size > 0) return size;
      return errors::InvalidArgument("Window size must be greater than zero, but got ", size, ".");
    }
    Status Open(const DatasetCall& call, int64_t key) {
      const auto group = groups_.find(key);
      auto held =
          MakeRef<HeldDataset>(dataset_->input_->types(), std::move(group->second.elements));
      groups_.erase(group);
      DatasetElement results;
      MR_RETURN_IF_ERROR(dataset_->functions_.reduce->Call(
          call, {Tensor::Scalar<int64_t>(key), VariantTensor(std::move(held))}, &results));
      MR_ASSIGN_OR_RETURN(const DatasetPtr inner, ResultDataset(results));
      MR_RETURN_IF_ERROR(CheckResultTypes("`reduce_func`", *inner, *dataset_));
      MR_ASSIGN_OR_RETURN(current_, inner->NewIterator());
      return OkStatus();
    }

    const RefPtr<const GroupByWindowDataset> dataset_;
    const DatasetWalkPtr walk_;
    std::map<int64_t, Group> groups_;
    DatasetWalkPtr current_;
    bool ended_ = false;
  };

  const DatasetPtr input_;
  const Functions functions_;
};

// Input 0 says for each element which of the others gives it.
class DirectedInterleaveDataset : public DatasetValue {
 public:
  DirectedInterleaveDataset(DatasetPtr selector, std::vector<DatasetPtr> inputs, bool stops)
      : DatasetValue(inputs[0]->types(), Blocks(*selector, inputs)),
        selector_(std::move(selector)),
        inputs_(std::move(inputs)),
        stops_on_empty_(stops) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr selector, selector_->NewIterator());
    std::vector<DatasetWalkPtr> walks;
    for (const DatasetPtr& input : inputs_) {
      MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input->NewIterator());
      walks.push_back(std::move(walk));
    }
    return DatasetWalkPtr(new Iterator(std::move(selector), std::move(walks), stops_on_empty_));
  }

 private:
  static bool Blocks(const DatasetValue& selector, const std::vector<DatasetPtr>& inputs) {
    return selector.blocks() || std::any_of(inputs.begin(), inputs.end(),
                                            [](const auto& input) { return input->blocks(); });
  }
  class Iterator : public DatasetWalk {
   public:
    Iterator(DatasetWalkPtr selector, std::vector<DatasetWalkPtr> walks, bool stops)
        : selector_(std::move(selector)),
          walks_(std::move(walks)),
          open_(walks_.size()),
          stops_(stops) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      while (open_ > 0) {
        DatasetElement choice;
        MR_RETURN_IF_ERROR(selector_->Next(call, &choice, end));
        if (*end) return OkStatus();
        MR_ASSIGN_OR_RETURN(const int64_t chosen, Number(choice, "the selector"));
        if (chosen < 0 || chosen >= static_cast<int64_t>(walks_.size())) {
          return errors::InvalidArgument("Selector index out of range: ", chosen,
                                         " >= ", walks_.size());
        }
        DatasetWalkPtr& walk = walks_[static_cast<std::size_t>(chosen)];
        if (!walk) continue;
        bool ended = false;
        MR_RETURN_IF_ERROR(walk->Next(call, element, &ended));
        if (!ended) return OkStatus();
        walk.reset();
        --open_;
        if (stops_) open_ = 0;
      }
      *end = true;
      return OkStatus();
    }

   private:
    const DatasetWalkPtr selector_;
    std::vector<DatasetWalkPtr> walks_;
    std::size_t open_;
    const bool stops_;
  };

  const DatasetPtr selector_;
  const std::vector<DatasetPtr> inputs_;
  const bool stops_on_empty_;
};

// --- Kernels ----------------------------------------------------------------------------------

int CountOf(KernelConstruction& c, const char* types) {
  return static_cast<int>(c.attr<std::vector<DataType>>(types).size());
}

class TakeWhileKernel : public DatasetKernel {
 public:
  explicit TakeWhileKernel(KernelConstruction& c)
      : DatasetKernel(c),
        captured_(CountOf(c, "Targuments")),
        predicate_(c.attr<FunctionName>("predicate"), /*on_one_device=*/true) {}

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(FunctionPtr predicate, Capture(ctx, predicate_, 1, captured_));
    return RefPtr<DatasetValue>(MakeRef<TakeWhileDataset>(std::move(input), std::move(predicate)));
  }

 private:
  const int captured_;
  const LazyFunction predicate_;
};

class ScanKernel : public DatasetKernel {
 public:
  explicit ScanKernel(KernelConstruction& c)
      : DatasetKernel(c),
        states_(CountOf(c, "Tstate")),
        captured_(CountOf(c, "Targuments")),
        types_(c.attr<std::vector<DataType>>("output_types")),
        may_end_(!c.attr<bool>("preserve_cardinality")),
        function_(c.attr<FunctionName>("f"), /*on_one_device=*/true) {}

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    MR_ASSIGN_OR_RETURN(FunctionPtr function,
                        Capture(ctx, function_, 1 + states_, captured_, "", may_end_));
    DatasetElement state;
    for (int i = 0; i < states_; ++i) state.push_back(ctx.locked_input(1 + i));
    return RefPtr<DatasetValue>(
        MakeRef<ScanDataset>(std::move(input), std::move(function), std::move(state), types_));
  }

 private:
  const int states_, captured_;
  const std::vector<DataType> types_;
  const bool may_end_;
  const LazyFunction function_;
};

class WindowKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    static constexpr const char* kNames[] = {"size", "shift", "stride"};
    int64_t numbers[3];
    for (int i = 0; i < 3; ++i) {
      MR_ASSIGN_OR_RETURN(numbers[i], IntScalar(ctx.input(1 + i), kNames[i]));
      if (numbers[i] <= 0) {
        return errors::InvalidArgument("Window ", kNames[i], " must be greater than zero.");
      }
    }
    int64_t span;
    if (__builtin_mul_overflow(numbers[0] - 1, numbers[2], &span) || span > kMostKept) {
      return errors::InvalidArgument("a window of ", numbers[0], " elements, ", numbers[2],
                                     " apart, is too large");
    }
    const Tensor& drop = ctx.input(4);
    if (drop.num_elements() != 1) {
      return errors::InvalidArgument("drop_remainder must be a bool scalar");
    }
    return RefPtr<DatasetValue>(MakeRef<WindowDataset>(std::move(input), numbers[0], numbers[1],
                                                       numbers[2], drop.scalar<bool>()));
  }
};

class GroupByWindowKernel : public DatasetKernel {
 public:
  explicit GroupByWindowKernel(KernelConstruction& c)
      : DatasetKernel(c),
        types_(c.attr<std::vector<DataType>>("output_types")),
        captured_{CountOf(c, "Tkey_func_other_arguments"),
                  CountOf(c, "Treduce_func_other_arguments"),
                  CountOf(c, "Twindow_size_func_other_arguments")},
        key_(c.attr<FunctionName>("key_func"), true),
        reduce_(c.attr<FunctionName>("reduce_func"), true),
        window_size_(c.attr<FunctionName>("window_size_func"), true) {}

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    GroupByWindowDataset::Functions f;
    int first = 1;
    MR_ASSIGN_OR_RETURN(f.key, Capture(ctx, key_, first, captured_[0]));
    first += captured_[0];
    MR_ASSIGN_OR_RETURN(f.reduce, Capture(ctx, reduce_, first, captured_[1]));
    first += captured_[1];
    MR_ASSIGN_OR_RETURN(f.window_size, Capture(ctx, window_size_, first, captured_[2]));
    return RefPtr<DatasetValue>(
        MakeRef<GroupByWindowDataset>(std::move(input), std::move(f), types_));
  }

 private:
  const std::vector<DataType> types_;
  const int captured_[3];
  const LazyFunction key_, reduce_, window_size_;
};

class DirectedInterleaveKernel : public DatasetKernel {
 public:
  explicit DirectedInterleaveKernel(KernelConstruction& c)
      : DatasetKernel(c), stops_(c.attr<bool>("stop_on_empty_dataset")) {}

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr selector, InputDataset(ctx, 0));
    if (selector->types() != std::vector<DataType>{kInt64}) {
      return errors::InvalidArgument("The selector dataset must produce a scalar int64 element.");
    }
    std::vector<DatasetPtr> inputs;
    for (int i = 1; i < ctx.num_inputs(); ++i) {
      MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, i));
      if (i > 1 && input->types() != inputs[0]->types()) {
        return errors::InvalidArgument("All inputs must have the same output_types; input ", i - 1,
                                       " has others");
      }
      inputs.push_back(std::move(input));
    }
    if (inputs.empty()) return errors::InvalidArgument("there is no data set to choose from");
    return RefPtr<DatasetValue>(
        MakeRef<DirectedInterleaveDataset>(std::move(selector), std::move(inputs), stops_));
  }

 private:
  const bool stops_;
};

}  // namespace

void RegisterWindowDatasets(KernelRegistry& r) {
  RegisterCpu<TakeWhileKernel>(r, "TakeWhileDataset");
  RegisterCpu<ScanKernel>(r, "ScanDataset");
  RegisterCpu<WindowKernel>(r, "WindowDataset");
  RegisterCpu<GroupByWindowKernel>(r, "GroupByWindowDataset");
  RegisterCpu<DirectedInterleaveKernel>(r, "DirectedInterleaveDataset");
}

}  // namespace millrace
