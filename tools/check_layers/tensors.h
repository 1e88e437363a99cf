// SPDX-License-Identifier: Apache-2.0
// The check of how code that works on the data of others makes tensors and runs kernels.
#pragma once

#include <vector>

#include "tools/check_layers/layers.h"

namespace millrace::layers {

// In kernels, decoders and services, tests and what runs on simulated devices aside:
//  - a tensor that is constructed with a shape, when the shape is not written out in numbers: the
//    constructor throws where Tensor::Allocate and the calls of a kernel's context return a status.
//    A comment of the same line, or of those above it, that begins "Bounded:" says what bounds it;
//  - AsShape() that is dereferenced at once: a shape may be known and yet be none that a tensor
//  has;
//  - Compute and ComputeAsync of a kernel that a step calls itself, and not by
//  kernels/run_kernel.h,
//    where what the standard library throws becomes the error of the step.
std::vector<Violation> CheckTensors(const Tree& tree);

}  // namespace millrace::layers
