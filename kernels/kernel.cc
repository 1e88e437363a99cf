// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernel.h"

#include <utility>

#include "kernels/kernel_context.h"

namespace millrace {

Kernel::Kernel(const KernelConstruction& c)
    : name_(c.name()),
      def_(&c.def()),
      num_inputs_(static_cast<int>(c.input_types().size())),
      num_outputs_(static_cast<int>(c.output_types().size())) {}

void Kernel::ComputeAsync(KernelContext& ctx, DoneCallback done) { done(Compute(ctx)); }

}  // namespace millrace
