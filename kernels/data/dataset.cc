#include "kernels/data/dataset.h"

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/data/pipeline.h"

namespace millrace {

StatusOr<DatasetPtr> InputDataset(const KernelContext& ctx, int i) {
  const auto* dataset = VariantCast<DatasetValue>(ctx.input(i));
  if (dataset != nullptr) return DatasetPtr::Share(dataset);
  return errors::InvalidArgument("input ", i, " of ", ctx.node_name(),
                                 " must be a scalar that holds a data set");
}

Status DatasetKernel::Compute(KernelContext& ctx) {
  MR_ASSIGN_OR_RETURN(RefPtr<DatasetValue> dataset, Make(ctx));
  std::vector<DatasetPtr> inputs;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    if (ctx.input_is_ref(i) || ctx.input(i).dtype() != kVariant) continue;
    StatusOr<DatasetPtr> input = InputDataset(ctx, i);
    if (input.ok()) inputs.push_back(*std::move(input));
  }
  ctx.SetOutput(0, VariantTensor(MakeStage(std::move(dataset), std::move(inputs))));
  return OkStatus();
}

}  // namespace millrace
