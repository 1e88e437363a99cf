// SPDX-License-Identifier: Apache-2.0
#include "kernels/data/captured_function.h"

#include <atomic>
#include <string>

#include "base/errors.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/resource_manager.h"

namespace millrace {

Status CapturedFunction::CallWith(const DatasetCall& call, DatasetElement* args,
                                  DatasetElement* results) const {
  std::string name;
  if (!advice_.empty() && !args->empty() && (*args)[0].dtype() == kString &&
      (*args)[0].rank() == 0) {
    name = (*args)[0].scalar<std::string>();
  }
  Status status = Run(call, args, results);
  args->clear();
  if (errors::IsOutOfRange(status) && !may_end_) {
    status =
        errors::InvalidArgument("Function invocation produced OutOfRangeError: ", Message(status));
  }
  if (status.ok() || name.empty() || errors::IsCancelled(status)) return status;
  return WithMessage(status, StrCat(name, ": ", Message(status), " (", advice_, ")"));
}

Status CapturedFunction::Run(const DatasetCall& call, DatasetElement* args,
                             DatasetElement* results) const {
  args->insert(args->end(), captured_.begin(), captured_.end());
  results->assign(function_->result_types().size(), Tensor());
  // Ends with the step that asks, and by itself if the function fails.
  CancellationManager cancellation(call.cancellation);
  static std::atomic<uint64_t> next{0};
  // Asking the system for a number each time would cost more than small functions do.
  static const uint64_t first_step = RandomId();
  const uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
  // Short: a longer text would take memory in every call.
  const std::string container = StrCat("_data", number);
  FunctionCall in;
  in.step_id = static_cast<int64_t>((first_step + 2 * number) >> 1);
  in.cancellation = &cancellation;
  in.step_container = container;
  Status status = runner_->Run(*function_, in, *args, *results);
  device_->resource_manager()->Cleanup(container);
  return status;
}

StatusOr<FunctionPtr> Capture(KernelContext& ctx, const LazyFunction& function, int first,
                              int count, const std::string& advice, bool may_end) {
  MR_ASSIGN_OR_RETURN(const RunnableFunction* const runnable, function.Get(ctx));
  std::vector<Tensor> captured;
  for (int i = 0; i < count; ++i) captured.push_back(ctx.locked_input(first + i));
  return FunctionPtr(MakeRef<CapturedFunction>(RefPtr<FunctionRunner>::Share(ctx.env().functions),
                                               runnable, ctx.device(), std::move(captured), advice,
                                               may_end));
}

StatusOr<DatasetPtr> ResultDataset(const DatasetElement& results) {
  const DatasetValue* const dataset =
      results.empty() ? nullptr : VariantCast<DatasetValue>(results[0]);
  if (dataset != nullptr) return DatasetPtr::Share(dataset);
  return errors::InvalidArgument("the function must give a scalar that holds a data set");
}

Status CheckResultTypes(std::string_view function, const DatasetValue& given,
                        const DatasetValue& outer) {
  if (given.types() == outer.types()) return OkStatus();
  const auto text = [](const std::vector<DataType>& types) {
    std::vector<std::string> names;
    for (const DataType type : types) names.push_back(DataTypeName(type));
    return StrCat("(", StrJoin(names, ", "), ")");
  };
  return errors::InvalidArgument(
      function, " gave a data set with elements of types ", text(given.types()),
      ", where the attribute output_types says ", text(outer.types()),
      ": make the function's data set one of these types, or set output_types to those it has");
}

}  // namespace millrace
