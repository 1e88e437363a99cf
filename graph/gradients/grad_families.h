// SPDX-License-Identifier: Apache-2.0
// Families of gradients that only this folder lists, and the steps that they share.
#ifndef GRAPH_GRADIENTS_GRAD_FAMILIES_H_
#define GRAPH_GRADIENTS_GRAD_FAMILIES_H_

#include "graph/gradients/gradient_registry.h"

namespace millrace {

// `dx` has the shape of output 0, which input `index` was broadcast to: sums it over the axes that
// broadcasting added and gives it the shape of the input.
void SetReducedGradient(GradContext& c, int index, const Output& dx);

// What a derivative of an analytic function is multiplied with: TensorFlow's derivatives of complex
// numbers are conjugates, so that descent goes downhill.
Output Conjugate(const Scope& scope, const Output& x);
bool IsComplexOutput(const Output& x);

void RegisterMatrixGradients(GradientRegistry& registry);
void RegisterEinsumGradients(GradientRegistry& registry);
void RegisterActivationGradients(GradientRegistry& registry);
void RegisterWindowGradients(GradientRegistry& registry);
void RegisterDomainGradients(GradientRegistry& registry);
void RegisterRaggedGradients(GradientRegistry& registry);
void RegisterCollectiveGradients(GradientRegistry& registry);
void RegisterCustomGradients(GradientRegistry& registry);  // of loaded libraries

}  // namespace millrace

#endif  // GRAPH_GRADIENTS_GRAD_FAMILIES_H_
