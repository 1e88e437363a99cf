// SPDX-License-Identifier: Apache-2.0
// Derivatives of reads of variables.
#include "graph/gradients/gradient_registry.h"

namespace millrace {

void RegisterStateGradients(GradientRegistry& r) {
  // The derivative with respect to a handle is that of the value behind it.
  r.Register("ReadVariableOp", [](GradContext& c) {
    c.set_dx(0, c.dy());
    return OkStatus();
  });
  for (const char* op : {"VarHandleOp", "VariableV2", "Variable", "Assign", "AssignAdd",
                         "AssignSub", "Placeholder"}) {
    r.RegisterNotDifferentiable(op);
  }
}

}  // namespace millrace
