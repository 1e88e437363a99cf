#include "kernels/data/dataset.h"

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {

StatusOr<DatasetPtr> InputDataset(const KernelContext& ctx, int i) {
  const auto* dataset = VariantCast<DatasetValue>(ctx.input(i));
  if (dataset != nullptr) return DatasetPtr::Share(dataset);
  return errors::InvalidArgument("input ", i, " of ", ctx.node_name(),
                                 " must be a scalar that holds a data set");
}

Status DatasetKernel::Compute(KernelContext& ctx) {
  MR_ASSIGN_OR_RETURN(RefPtr<DatasetValue> dataset, Make(ctx));
  ctx.SetOutput(0, VariantTensor(std::move(dataset)));
  return OkStatus();
}

}  // namespace millrace
