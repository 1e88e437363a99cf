// SPDX-License-Identifier: Apache-2.0
// Kernels of distributions with parameters, and of generators that are variables.
#ifndef KERNELS_RANDOM_DISTRIBUTIONS_H_
#define KERNELS_RANDOM_DISTRIBUTIONS_H_

#include "kernels/kernel_registry.h"

namespace millrace {

void RegisterDistributionKernels(KernelRegistry& registry);  // gamma, Poisson
void RegisterBinomialKernels(KernelRegistry& registry);
void RegisterStatefulRandomKernels(KernelRegistry& registry);  // of variables
void RegisterGammaGradientKernels(KernelRegistry& registry);
void RegisterTruncatedNormalKernels(KernelRegistry& registry);  // between bounds
void RegisterRandomCropKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_RANDOM_DISTRIBUTIONS_H_
