// SPDX-License-Identifier: Apache-2.0
// The ops that an accelerator may compute.
#ifndef KERNELS_ACCELERATOR_COMPUTING_OPS_H_
#define KERNELS_ACCELERATOR_COMPUTING_OPS_H_

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// Operands that shapes, axes and indices are read from lie in host memory, as they do for
// TensorFlow's GPU kernels.
struct ComputingOp {
  std::string_view op;
  std::vector<std::string> host_args;
  // The sizes of outputs depend on values in device memory, which are counted first.
  bool counts = false;
};

// Those whose outputs have shapes that are known before they are computed, or once something was
// counted, and that keep no state other than variables behind handles and references. Constant.
const std::vector<ComputingOp>& ComputingOps();

// Whether it is one of those that count.
bool CountsFirst(std::string_view op);

}  // namespace millrace

#endif  // KERNELS_ACCELERATOR_COMPUTING_OPS_H_
