// SPDX-License-Identifier: Apache-2.0
// The check of how large files, functions and folders are. What is larger already may not grow.
#pragma once

#include <vector>

#include "tools/check_layers/layers.h"

namespace millrace::layers {

// Sizes that a reader can carry.
inline constexpr int kFileLines = 600;
inline constexpr int kFunctionLines = 80;
inline constexpr int kFolderFiles = 60;  // sources directly in a folder

// Every file, function and folder over its size, unless the table in sizes.cc allows it exactly so
// much; and every entry of that table that has become too generous, so that it only ever falls.
std::vector<Violation> CheckSizes(const Tree& tree);

}  // namespace millrace::layers
