// SPDX-License-Identifier: Apache-2.0
// One worker's part of a data set that all workers have alike.
#ifndef KERNELS_DATA_AUTO_SHARD_H_
#define KERNELS_DATA_AUTO_SHARD_H_

#include <cstdint>

#include "kernels/data/dataset.h"
#include "kernels/kernel_context.h"

namespace millrace {

// What is dealt out: nothing, files if there are some and elements otherwise, files, elements, or
// what a ShardDataset in the data set marks.
enum ShardPolicy : int64_t {
  kShardOff = -1,
  kShardAuto = 0,
  kShardFiles = 1,
  kShardElements = 2,
  kShardHint = 3
};

struct ShardOf {
  int64_t workers, index;
};

// The data set, as an element of a variant tensor, that is made from the graph of `dataset` with a
// ShardDataset where the policy wants it. Blocks. NotFound: there are no files that can be dealt
// out; whatever making a data set from a graph says.
StatusOr<Tensor> AutoShard(KernelContext& ctx, const DatasetValue& dataset, ShardOf shard,
                           int64_t policy);

}  // namespace millrace

#endif  // KERNELS_DATA_AUTO_SHARD_H_
