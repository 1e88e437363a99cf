// SPDX-License-Identifier: Apache-2.0
// The batches of replicas that the global batches of a data set are cut into.
#ifndef DATA_PIPELINE_PIECES_H_
#define DATA_PIPELINE_PIECES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/data.h"

namespace millrace {

// One of several workers.
struct WorkerPart {
  std::vector<int64_t> replicas = {1};  // of each of them
  int64_t index = 0;
  bool takes_neighbours = false;  // consecutive pieces of a batch, whatever TensorFlow does
};

struct Pieces {
  // Elements are batches of one replica each, in turn: those of the worker's first step, then those
  // of its second.
  Dataset dataset;
  AutoShard policy = AutoShard::kOff;  // what was done: never kAuto
  std::string reason;                  // why kAuto did not take kFile, "" if it did
  // Steps until the data end, kInfinite or kUnknown.
  int64_t steps = Dataset::kUnknown;
};

// Of a data set of global batches, as TensorFlow's strategies do.
//   kData (and whatever the policy, one worker by itself): each replica of all workers gets a piece
//     of each batch, the ceiling of an equal part, until no rows are left. Pieces are dealt out to
//     the first replicas of all workers, then to the second ones of those that have two, and so on
//     (to all replicas of the first worker, then of the second, if it takes neighbours). Every
//     worker makes all batches: to be the same everywhere, orders of shuffles without a seed are
//     drawn from `order_seed`, if it is not 0 (those within functions of elements are not).
//   kFile, kHint, kOff: what the worker reads (ShardForWorker) in batches of the sizes that
//     BatchSizesForWorker says, which begin anew in each batch; of batches whose size is not known
//     every piece is the ceiling of an equal part.
// InvalidArgument if elements have no first axis, which is that of a batch; else what
// ShardForWorker says.
StatusOr<Pieces> PiecesForWorker(const Dataset& batches, AutoShard policy, const WorkerPart& part,
                                 int64_t order_seed);

// With another component, a float scalar: 1. Goes on for ever after the end, if there is one, with
// batches without rows and 0; of theirs, axes of unknown sizes have one element.
Dataset WithEmptyBatches(const Dataset& batches);

}  // namespace millrace

#endif  // DATA_PIPELINE_PIECES_H_
