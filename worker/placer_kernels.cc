// SPDX-License-Identifier: Apache-2.0
#include "worker/placer_kernels.h"

#include <optional>

namespace millrace {

void SetKernels(const KernelRegistry* kernels, PlacerInput* input) {
  input->kernel = [kernels](const OpInfo& op, const AttrMap& attrs,
                            std::string_view device_type) -> std::optional<int> {
    const KernelDef* const def = kernels->Find(op.def.name(), device_type, attrs);
    if (def == nullptr) return std::nullopt;
    return def->priority;
  };
  input->describe_kernels = [kernels](std::string_view op) { return kernels->DescribeKernels(op); };
}

}  // namespace millrace
