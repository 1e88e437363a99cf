// SPDX-License-Identifier: Apache-2.0
#include "kernels/data/dataset.h"

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/data/pipeline.h"

namespace millrace {
namespace {

std::shared_ptr<const DatasetOp> OpOf(const KernelConstruction& c) {
  auto op =
      std::make_shared<DatasetOp>(DatasetOp{c.def().name(), std::string(c.name()), c.attrs()});
  for (const auto& [name, value] : op->attrs) {
    op->names_functions = op->names_functions || value.function() != nullptr ||
                          value.get_if<std::vector<FunctionName>>() != nullptr;
  }
  return op;
}

}  // namespace

StatusOr<DatasetPtr> InputDataset(const KernelContext& ctx, int i) {
  const auto* dataset = VariantCast<DatasetValue>(ctx.input(i));
  if (dataset != nullptr) return DatasetPtr::Share(dataset);
  return errors::InvalidArgument("input ", i, " of ", ctx.node_name(),
                                 " must be a scalar that holds a data set");
}

DatasetKernel::DatasetKernel(const KernelConstruction& c) : Kernel(c), op_(OpOf(c)) {}

Status DatasetKernel::Compute(KernelContext& ctx) {
  MR_ASSIGN_OR_RETURN(RefPtr<DatasetValue> dataset, Make(ctx));
  StageOrigin origin{op_, {}, {}};
  for (int i = 0; i < ctx.num_inputs(); ++i) origin.args.push_back(ctx.locked_input(i));
  if (op_->names_functions && ctx.env().functions != nullptr) {
    origin.functions = RefPtr<FunctionRunner>::Share(ctx.env().functions);
  }
  MR_ASSIGN_OR_RETURN(RefPtr<DatasetValue> stage, MakeStage(std::move(dataset), std::move(origin)));
  ctx.SetOutput(0, VariantTensor(std::move(stage)));
  return OkStatus();
}

}  // namespace millrace
