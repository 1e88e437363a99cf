// SPDX-License-Identifier: Apache-2.0
// Where the rows of a table go whose vocabulary has changed (VocabInfo).
#ifndef TRAINING_CHECKPOINT_VOCABULARY_H_
#define TRAINING_CHECKPOINT_VOCABULARY_H_

#include <cstdint>
#include <vector>

#include "millrace/saver.h"
#include "millrace/status.h"

namespace millrace {

// For each row of the new table, oov buckets last, the row of the old one that it takes; -1: none,
// the word is new or it is a bucket. InvalidArgument, with the file, for sizes that cannot be, a
// file with fewer lines, and a word that the old vocabulary has twice; the error of a file that
// cannot be read.
StatusOr<std::vector<int64_t>> OldRows(const VocabInfo& vocabulary);

}  // namespace millrace

#endif  // TRAINING_CHECKPOINT_VOCABULARY_H_
