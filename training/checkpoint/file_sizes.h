// SPDX-License-Identifier: Apache-2.0
// Tensors as files of a limited size take them.
#ifndef TRAINING_CHECKPOINT_FILE_SIZES_H_
#define TRAINING_CHECKPOINT_FILE_SIZES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "millrace/graph.h"
#include "training/checkpoint/save_nodes.h"

namespace millrace {

// The items of each file, of at most `max_bytes`, in their order; what is too big for one is cut by
// nodes in `scope`. Shapes must be known. Texts count nothing.
std::vector<std::vector<SaveItem>> SplitBySize(const Scope& scope, std::span<const SaveItem> items,
                                               int64_t max_bytes);

}  // namespace millrace

#endif  // TRAINING_CHECKPOINT_FILE_SIZES_H_
