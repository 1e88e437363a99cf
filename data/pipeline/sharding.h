// SPDX-License-Identifier: Apache-2.0
// The part of a data set that one of several workers reads: pipelines rewritten as TensorFlow's
// distribution strategies do.
#ifndef DATA_PIPELINE_SHARDING_H_
#define DATA_PIPELINE_SHARDING_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "millrace/data.h"

namespace millrace {

struct ShardedDataset {
  Dataset dataset;
  AutoShard policy = AutoShard::kOff;  // what was done: never kAuto
  std::string reason;                  // why kAuto did not take kFile, "" if it did
};

// Worker `index` of `workers` reads
//   kOff   everything;
//   kFile  every workers-th file: the shard stands before what reads files, shuffles of names of
//          files included. NotFound if elements do not come from files;
//   kData  every workers-th element of the whole pipeline;
//   kHint  every workers-th element where Shard(kShardHint, kShardHint) stands; NotFound if nothing
//          does;
//   kAuto  as kFile, or as kData where that is not possible.
// With one worker the data set as it is. Where a worker would have nothing to read, its first step
// fails with InvalidArgument. InvalidArgument for an index that is none; the data set's own error.
StatusOr<ShardedDataset> ShardForWorker(const Dataset& dataset, AutoShard policy, int64_t workers,
                                        int64_t index);

// Sizes of the batches, one after the other and over again, that worker `index` makes instead of
// batches of `global_batch`: one for each replica, floor or ceiling of an equal part. Each
// worker's list begins behind those of the workers before it, so that what is left over evens out.
// Empty for what cannot be (fewer than one of anything). `replicas`: of each worker.
std::vector<int64_t> BatchSizesForWorker(int64_t global_batch, std::span<const int64_t> replicas,
                                         int64_t index);

// How `records` of one batch are dealt to replicas: the ceiling of an equal part each, until none
// are left.
std::vector<int64_t> RecordsPerReplica(int64_t records, int64_t replicas);

}  // namespace millrace

#endif  // DATA_PIPELINE_SHARDING_H_
