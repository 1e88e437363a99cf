// SPDX-License-Identifier: Apache-2.0
#include "jit/fused_parts.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {

Status FusedParts::Compute(KernelContext& ctx, const std::string& name, Maker make) {
  if (!made_.load(std::memory_order_acquire)) MR_RETURN_IF_ERROR(MakeKernels(name, make));
  const std::size_t count = program_->instructions.size();
  std::vector<EdgeValue> results(count), in;
  for (std::size_t i = 0; i < count; ++i) {
    const FusedInstruction& part = program_->instructions[i];
    in.clear();
    for (const int32_t arg : part.args) {
      EdgeValue& value = in.emplace_back();
      value.kind = EdgeValue::Kind::kValue;
      const bool is_last = arg < 0 && last_use_[~arg] == static_cast<int>(i) &&
                           std::count(part.args.begin(), part.args.end(), arg) == 1;
      value.value = arg >= 0  ? ctx.input(arg)
                    : is_last ? std::move(results[~arg].value)
                              : results[~arg].value;
    }
    KernelContext each(kernels_[i].get(), ctx.device(), &ctx.env(), in, {&results[i], 1},
                       {&part.result, 1});
    each.set_allocator(ctx.allocator());
    if (Status status = kernels_[i]->Compute(each); !status.ok()) {
      if (kernels_[i]->name() == name) return status;
      return Annotate(status, StrCat("\n\t [[{{node ", kernels_[i]->name(), "}}]]"));
    }
  }
  for (std::size_t k = 0; k < program_->outputs.size(); ++k) {
    ctx.SetOutput(static_cast<int>(k), std::move(results[program_->outputs[k]].value));
  }
  return OkStatus();
}

Status FusedParts::MakeKernels(const std::string& name, Maker make) {
  MutexLock lock(&mu_);
  if (made_.load(std::memory_order_relaxed)) return OkStatus();
  const std::size_t count = program_->instructions.size();
  std::vector<int> last_use(count, -1);
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (std::size_t i = 0; i < count; ++i) {
    const FusedInstruction& part = program_->instructions[i];
    for (const int32_t arg : part.args) {
      if (arg < 0) last_use[~arg] = static_cast<int>(i);
    }
    MR_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel,
                        make(part, i < nodes_.size() ? nodes_[i] : name));
    kernels.push_back(std::move(kernel));
  }
  for (const int32_t output : program_->outputs) last_use[output] = -1;
  kernels_ = std::move(kernels);
  last_use_ = std::move(last_use);
  made_.store(true, std::memory_order_release);
  return OkStatus();
}

}  // namespace millrace
