// SPDX-License-Identifier: Apache-2.0
// Data sets without the elements that were there before.
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "kernels/common/kernel_util.h"
#include "kernels/data/data_kernels.h"
#include "kernels/data/dataset.h"

namespace millrace {
namespace {

// The same text for equal values only: shape, and elements one behind the other.
std::string KeyOf(const Tensor& value) {
  std::string key = StrCat(value.shape().DebugString(), ":");
  if (value.num_elements() == 0) return key;
  if (value.dtype() != kString) {
    key.append(static_cast<const char*>(value.raw_data()), value.num_bytes());
    return key;
  }
  for (const std::string& text : value.flat<std::string>()) StrAppend(&key, text.size(), ":", text);
  return key;
}

class UniqueDataset : public DatasetValue {
 public:
  explicit UniqueDataset(DatasetPtr input)
      : DatasetValue(input->types(), input->blocks()), input_(std::move(input)) {}
  StatusOr<DatasetWalkPtr> NewIterator() const override {
    MR_ASSIGN_OR_RETURN(DatasetWalkPtr walk, input_->NewIterator());
    return DatasetWalkPtr(new Iterator(std::move(walk)));
  }

 private:
  class Iterator : public DatasetWalk {
   public:
    explicit Iterator(DatasetWalkPtr walk) : walk_(std::move(walk)) {}
    Status Next(const DatasetCall& call, DatasetElement* element, bool* end) override {
      for (;;) {
        MR_RETURN_IF_ERROR(walk_->Next(call, element, end));
        if (*end || seen_.insert(KeyOf(element->at(0))).second) return OkStatus();
        element->clear();
      }
    }

   private:
    const DatasetWalkPtr walk_;
    absl::flat_hash_set<std::string> seen_;
  };

  const DatasetPtr input_;
};

class UniqueDatasetKernel : public DatasetKernel {
 public:
  using DatasetKernel::DatasetKernel;

 protected:
  StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(DatasetPtr input, InputDataset(ctx, 0));
    if (input->types().size() != 1) {
      return errors::InvalidArgument("UniqueDataset only supports inputs with a single component.");
    }
    const DataType type = input->types()[0];
    if (type != kInt32 && type != kInt64 && type != kString) {
      return errors::InvalidArgument(
          "UniqueDataset only supports inputs with a single `tf.int32`, "
          "`tf.int64`, or `tf.string` component, and not ",
          DataTypeName(type));
    }
    return RefPtr<DatasetValue>(MakeRef<UniqueDataset>(std::move(input)));
  }
};

}  // namespace

void RegisterUniqueDatasets(KernelRegistry& r) {
  RegisterCpu<UniqueDatasetKernel>(r, "UniqueDataset");
}

}  // namespace millrace
