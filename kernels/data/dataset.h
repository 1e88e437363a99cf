// SPDX-License-Identifier: Apache-2.0
// Data sets of graphs: a recipe for a sequence of elements, and the state of walking it. A data
// set is the content of a variant, made by an op and never changed; iterators are made from it.
#ifndef KERNELS_DATA_DATASET_H_
#define KERNELS_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "kernels/common/variant.h"
#include "kernels/kernel_context.h"
#include "millrace/ref_ptr.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// One element: a tensor per component.
using DatasetElement = std::vector<Tensor>;

// What one call of Next brings along; outlives the call.
struct DatasetCall {
  Allocator* allocator = nullptr;
  CancellationManager* cancellation = nullptr;  // of the step that asks
};

// Used by one thread at a time.
class DatasetWalk {
 public:
  virtual ~DatasetWalk() = default;
  // The next element, or *end and none. After an error the walk may go on with the element
  // behind the one that failed.
  virtual Status Next(const DatasetCall& call, DatasetElement* element, bool* end) = 0;
  // True: the next call of Next will not wait for anything. Only of data sets that block.
  virtual bool Ready() { return false; }
};
using DatasetWalkPtr = std::unique_ptr<DatasetWalk>;

class DatasetValue : public RefCounted {
 public:
  static constexpr int64_t kInfinite = -1, kUnknown = -2;

  virtual StatusOr<DatasetWalkPtr> NewIterator() const = 0;
  // Number of elements, kInfinite or kUnknown.
  virtual int64_t cardinality() const { return kUnknown; }

  const std::vector<DataType>& types() const { return types_; }
  // Its iterators may wait for functions or threads: they are walked in the background
  // (kernels/background.h), unless they are ready.
  bool blocks() const { return blocks_; }

 protected:
  explicit DatasetValue(std::vector<DataType> types, bool blocks = false)
      : types_(std::move(types)), blocks_(blocks) {}

 private:
  const std::vector<DataType> types_;
  const bool blocks_;
};
using DatasetPtr = RefPtr<const DatasetValue>;

// The data set in input i; InvalidArgument if there is none.
StatusOr<DatasetPtr> InputDataset(const KernelContext& ctx, int i);

// What a node that makes data sets is.
struct DatasetOp {
  std::string name, node;
  AttrMap attrs;
  bool names_functions = false;  // in attributes
};

// Base of ops that output a data set. What they have made remembers the op and its inputs, so that
// it can be written as a graph.
class DatasetKernel : public Kernel {
 public:
  explicit DatasetKernel(const KernelConstruction& c);
  Status Compute(KernelContext& ctx) override;

 protected:
  virtual StatusOr<RefPtr<DatasetValue>> Make(KernelContext& ctx) = 0;

 private:
  const std::shared_ptr<const DatasetOp> op_;
};

}  // namespace millrace

#endif  // KERNELS_DATA_DATASET_H_
