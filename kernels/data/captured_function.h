// SPDX-License-Identifier: Apache-2.0
// Functions of the graph as data sets use them.
#ifndef KERNELS_DATA_CAPTURED_FUNCTION_H_
#define KERNELS_DATA_CAPTURED_FUNCTION_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/data/dataset.h"
#include "kernels/function_runner.h"

namespace millrace {

// A function together with the values that it takes behind those of an element. Holds on to what
// runs it, so that it outlives the step that made it. Thread-safe.
class CapturedFunction : public RefCounted {
 public:
  CapturedFunction(RefPtr<FunctionRunner> runner, const RunnableFunction* function, Device* device,
                   std::vector<Tensor> captured, std::string advice = "", bool may_end = false)
      : runner_(std::move(runner)),
        function_(function),
        device_(device),
        captured_(std::move(captured)),
        advice_(std::move(advice)),
        may_end_(may_end) {}

  // Blocks until the results are there, or call.cancellation says so. The end of something that
  // the function reads is InvalidArgument here, as it is not the end of the data, unless the
  // function may_end(): then OutOfRange is. Of elements that are names, errors begin with the name
  // and end with the advice.
  Status Call(const DatasetCall& call, DatasetElement args, DatasetElement* results) const {
    return CallWith(call, &args, results);
  }
  // The same for whoever calls again and again: *args is empty then, and takes no new memory.
  Status CallWith(const DatasetCall& call, DatasetElement* args, DatasetElement* results) const;
  // The same, but OutOfRange stays what it is: the function says that the data ends.
  Status CallToEnd(const DatasetCall& call, DatasetElement args, DatasetElement* results) const {
    return Run(call, &args, results);
  }
  // Whether it may say by OutOfRange that the data ends: attribute preserve_cardinality is false.
  bool may_end() const { return may_end_; }
  // Whether it has said so with `status`, which is OK then.
  bool Ended(Status* status) const {
    if (!may_end_ || status->code() != StatusCode::kOutOfRange) return false;
    *status = OkStatus();
    return true;
  }
  const std::vector<DataType>& result_types() const { return function_->result_types(); }
  Device* device() const { return device_; }

 private:
  Status Run(const DatasetCall& call, DatasetElement* args, DatasetElement* results) const;

  const RefPtr<FunctionRunner> runner_;
  const RunnableFunction* const function_;
  Device* const device_;
  const std::vector<Tensor> captured_;
  const std::string advice_;  // "": errors are left as they are
  const bool may_end_;
};
using FunctionPtr = RefPtr<const CapturedFunction>;

// With `count` inputs of the kernel, from `first` on, as the captured values. With `advice`, an
// element's first component, a string scalar, is what its errors are about.
StatusOr<FunctionPtr> Capture(KernelContext& ctx, const LazyFunction& function, int first,
                              int count, const std::string& advice = "", bool may_end = false);

// The data set that a function gave; InvalidArgument if it gave none.
StatusOr<DatasetPtr> ResultDataset(const DatasetElement& results);
// InvalidArgument, with both lists of types, if the data set that `function` (an attribute) gave
// has elements of other types than those of `outer`, which passes them on.
Status CheckResultTypes(std::string_view function, const DatasetValue& given,
                        const DatasetValue& outer);

}  // namespace millrace

#endif  // KERNELS_DATA_CAPTURED_FUNCTION_H_
