// SPDX-License-Identifier: Apache-2.0
// Pieces that several families of gradients share.
#ifndef GRAPH_GRADIENTS_GRAD_UTIL_H_
#define GRAPH_GRADIENTS_GRAD_UTIL_H_

#include "graph/gradients/gradient_registry.h"

namespace millrace {

// `dx` and `dy` have the shape of the broadcast of x and y: sums them over the axes that
// broadcasting added and gives them the shapes of x and y. Decided while building where both
// shapes are known, else through BroadcastGradientArgs. Either may be not valid.
void SetBroadcastGradients(GradContext& c, int x_index, Output dx, int y_index, Output dy);

// A constant of the type of `like`.
Output ConstantLike(const Scope& scope, const Output& like, double value);

// Zeros of the shape of `x`: of the value of type `dtype` behind it, if it is a variable's handle.
Output ZerosFor(const Scope& scope, const Output& x, DataType dtype);

}  // namespace millrace

#endif  // GRAPH_GRADIENTS_GRAD_UTIL_H_
