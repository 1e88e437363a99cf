// SPDX-License-Identifier: Apache-2.0
// What the kernels of optimizers, of whichever device, read from their op and check of its inputs.
#ifndef KERNELS_TRAINING_UPDATE_CALL_H_
#define KERNELS_TRAINING_UPDATE_CALL_H_

#include <string_view>

#include "kernels/kernel.h"
#include "kernels/training/update_rules.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

rules::UpdateFlags UpdateFlagsOf(const KernelConstruction& c);

// The position of the op's input of this name; -1 if it has none.
int FindInput(const KernelConstruction& c, std::string_view name);

// The position of the gradient, which is called grad or delta; -1 if there is none.
int FindGradient(const KernelConstruction& c);

// InvalidArgument unless a `gradient` of shape [n, ...] with n `indices` updates rows of `var`,
// whose shape is [rows, ...]. The values of the indices are not looked at. Pure.
Status CheckRowShapes(const Tensor& var, const Tensor& gradient, const Tensor& indices);

}  // namespace millrace

#endif  // KERNELS_TRAINING_UPDATE_CALL_H_
