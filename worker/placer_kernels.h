// SPDX-License-Identifier: Apache-2.0
// The kernels of a task, as the placer asks for them.
#ifndef WORKER_PLACER_KERNELS_H_
#define WORKER_PLACER_KERNELS_H_

#include "kernels/kernel_registry.h"
#include "placer/placer.h"

namespace millrace {

// `kernels` must outlive the input.
void SetKernels(const KernelRegistry* kernels, PlacerInput* input);

}  // namespace millrace

#endif  // WORKER_PLACER_KERNELS_H_
