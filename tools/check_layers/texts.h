// SPDX-License-Identifier: Apache-2.0
// The check that what an op accepts is written once for all devices.
#pragma once

#include <vector>

#include "tools/check_layers/layers.h"

namespace millrace::layers {

// Texts of errors (literals of 20 characters or more within errors::X(...), those behind each other
// joined) that stand both in the kernels of the CPU and in those of an accelerator: the rule they
// tell of would be kept in two places, and belongs into a plan (docs/adding_an_op.md).
std::vector<Violation> CheckTexts(const Tree& tree);

}  // namespace millrace::layers
