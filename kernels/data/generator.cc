// SPDX-License-Identifier: Apache-2.0
// Data sets whose elements a function gives, called again and again until it says that there are
// no more.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data/captured_function.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"

namespace millrace {
namespace {

class GeneratorDataset : public DatasetValue {
 public:
  struct Functions {
    FunctionPtr init, next, finalize;
  };
  GeneratorDataset(Functions functions, std::vector<DataType> types)
      : DatasetValue(std::move(types), /*blocks=*/true), functions_(std::move(functions)) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    return DatasetWalkPtr(new Iterator(functions_));
  }

 private:
  // `finalize` is called at the end of the elements. A walk that is left before ends without it:
  // nobody is there to wait for what it does.
  class Iterator : public DatasetWalk {
   public:
    explicit Iterator(Functions functions) : functions_(std::move(functions)) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      *end = stage_ == Stage::kEnded;
      if (*end) return OkStatus();
      if (stage_ == Stage::kNew) {
        MR_RETURN_IF_ERROR(functions_.init->Call(call, {}, &state_));
        stage_ = Stage::kGives;
      }
      const Status status = functions_.next->CallToEnd(call, state_, element);
      if (!errors::IsOutOfRange(status)) return status;
      element->clear();
      *end = true;
      stage_ = Stage::kEnded;
      DatasetElement ignored;
      return functions_.finalize->Call(call, std::move(state_), &ignored);
    }

   private:
    enum class Stage { kNew, kGives, kEnded };
    const Functions functions_;
    Stage stage_ = Stage::kNew;
    DatasetElement state_;
  };

  const Functions functions_;
};

class GeneratorKernel : public DatasetKernel {
 public:
  explicit GeneratorKernel(KernelConstruction& c)
      : DatasetKernel(c),
        types_(c.attr<std::vector<DataType>>("output_types")),
        init_(c.attr<FunctionName>("init_func"), /*on_one_device=*/true),
        next_(c.attr<FunctionName>("next_func"), /*on_one_device=*/true),
        finalize_(c.attr<FunctionName>("finalize_func"), /*on_one_device=*/true),
        num_init_(static_cast<int>(c.attr<std::vector<DataType>>("Tinit_func_args").size())),
        num_next_(static_cast<int>(c.attr<std::vector<DataType>>("Tnext_func_args").size())) {}

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    GeneratorDataset::Functions functions;
    MR_ASSIGN_OR_RETURN(functions.init, Capture(ctx, init_, 0, num_init_));
    const auto states = static_cast<int>(functions.init->result_types().size());
    MR_ASSIGN_OR_RETURN(functions.next, CaptureTaken(ctx, next_, states, num_init_, num_next_));
    const int others = num_init_ + num_next_;
    MR_ASSIGN_OR_RETURN(functions.finalize,
                        CaptureTaken(ctx, finalize_, states, others, ctx.num_inputs() - others));
    if (functions.next->result_types() != types_) {
      return errors::InvalidArgument("next_func of ", name(),
                                     " gives values of other types than the data set");
    }
    return RefPtr<DatasetValue>(MakeRef<GeneratorDataset>(std::move(functions), types_));
  }

 private:
  // Behind what the function takes, clients give handles of what shall live as long as the data
  // set.
  static StatusOr<FunctionPtr> CaptureTaken(KernelContext& ctx, const LazyFunction& function,
                                            int states, int first, int count) {
    MR_ASSIGN_OR_RETURN(const RunnableFunction* const found, function.Get(ctx));
    const int takes = static_cast<int>(found->arg_types().size()) - states;
    return Capture(ctx, function, first, std::clamp(takes, 0, count));
  }

  const std::vector<DataType> types_;
  const LazyFunction init_, next_, finalize_;
  const int num_init_, num_next_;
};

}  // namespace

void RegisterGeneratorDatasets(KernelRegistry& r) {
  RegisterCpu<GeneratorKernel>(r, "GeneratorDataset");
}

}  // namespace millrace
