// SPDX-License-Identifier: Apache-2.0
// What a data set is held to: to give no errors, as many elements as were promised, or just one.
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/background.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"

namespace millrace {
namespace {

constexpr int64_t kInfinite = DatasetValue::kInfinite, kUnknown = DatasetValue::kUnknown;

// Without the elements that failed, and as many as were promised.
class CheckedDataset : public DatasetValue {
 public:
  CheckedDataset(DatasetPtr input, bool ignores_errors, int64_t promised)
      : DatasetValue(input->types(), input->blocks()),
        input_(std::move(input)),
        ignores_errors_(ignores_errors),
        promised_(promised) {}
  int64_t cardinality() const override { return ignores_errors_ ? kUnknown : promised_; }
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(std::move(walk), ignores_errors_, promised_));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    Iterator(DatasetWalkPtr walk, bool ignores_errors, int64_t promised)
        : walk_(std::move(walk)), ignores_errors_(ignores_errors), promised_(promised) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      for (;;) {
        element->clear();
        const Status status = walk_->Next(call, element, end);
        if (ignores_errors_ && !status.ok() && !errors::IsCancelled(status)) continue;
        MR_RETURN_IF_ERROR(status);
        break;
      }
      if (promised_ == kUnknown) return OkStatus();
      if (!*end) ++given_;
      if (*end ? promised_ == kInfinite || given_ < promised_
               : promised_ != kInfinite && given_ > promised_) {
        return errors::FailedPrecondition(
            "Input dataset was expected to contain ",
            promised_ == kInfinite ? std::string("an infinite number of")
                                   : std::to_string(promised_),
            " elements but contained ", *end ? "only " : "at least ", given_, " elements.");
      }
      return OkStatus();
    }

   private:
    const DatasetWalkPtr walk_;
    const bool ignores_errors_;
    const int64_t promised_;
    int64_t given_ = 0;
  };

  const DatasetPtr input_;
  const bool ignores_errors_;
  const int64_t promised_;
};

// IgnoreErrorsDataset and AssertCardinalityDataset.
class CheckedKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    int64_t promised = kUnknown;
    const bool asserts = ctx.num_inputs() == 2;
    if (asserts) {
      MR_ASSIGN_OR_RETURN(promised, IntScalar(ctx.input(1), "cardinality"));
    }
    return RefPtr<DatasetValue>(MakeRef<CheckedDataset>(std::move(input), !asserts, promised));
  }
};

// The one element that a data set has.
class SingleElementKernel : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsAsync() const override { return true; }
  Status Compute(KernelContext&) override {
    return errors::Internal(def().name(), " is asynchronous");
  }
  void ComputeAsync(KernelContext& ctx, DoneCallback done) override {
    StatusOr<DatasetPtr> input = InputDataset(ctx, 0);
    if (!input.ok()) return done(input.status());
    ComputeInBackground(ctx.device(), done,
                        [this, &ctx, input = *std::move(input)] { return Give(ctx, *input); });
  }

 private:
  Status Give(KernelContext& ctx, const DatasetValue& input) const {
    MR_ASSIGN_OR_RETURN(const DatasetWalkPtr walk, input.NewIterator());
    const DatasetCall call{ctx.allocator(), ctx.cancellation()};
    DatasetElement element, more;
    bool end = false;
    MR_RETURN_IF_ERROR(walk->Next(call, &element, &end));
    if (end) return errors::InvalidArgument("Dataset was empty.");
    MR_RETURN_IF_ERROR(walk->Next(call, &more, &end));
    if (!end) return errors::InvalidArgument("Dataset had more than one element.");
    if (static_cast<int>(element.size()) != ctx.num_outputs()) {
      return errors::InvalidArgument(name(), " has ", ctx.num_outputs(),
                                     " outputs, but its data set ", element.size(), " components");
    }
    for (int i = 0; i < ctx.num_outputs(); ++i) ctx.SetOutput(i, std::move(element[i]));
    return OkStatus();
  }
};

}  // namespace

void RegisterDatasetChecks(KernelRegistry& r) {
  RegisterCpu<CheckedKernel>(r, "IgnoreErrorsDataset");
  RegisterCpu<CheckedKernel>(r, "AssertCardinalityDataset");
  RegisterCpu<SingleElementKernel>(r, "DatasetToSingleElement");
}

}  // namespace millrace
