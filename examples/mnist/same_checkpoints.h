// SPDX-License-Identifier: Apache-2.0
// For tests of jobs that end as another one did.
#ifndef EXAMPLES_MNIST_SAME_CHECKPOINTS_H_
#define EXAMPLES_MNIST_SAME_CHECKPOINTS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "millrace/checkpoint.h"
#include "millrace/evaluator.h"
#include "millrace/saver.h"

namespace millrace::mnist {

// The newest checkpoint of a folder, which is to be that of the step; null, and a failure of the
// test, if it cannot be read.
inline std::unique_ptr<CheckpointReader> LastOf(const std::string& folder, int64_t step) {
  const std::string newest = LatestCheckpoint(folder);
  EXPECT_EQ(CheckpointNumber(newest).value_or(-1), step) << newest;
  auto reader = CheckpointReader::Open(newest);
  EXPECT_TRUE(reader.ok()) << reader.status();
  return reader.ok() ? *std::move(reader) : nullptr;
}

// That the newest checkpoints of two folders are of this step, and have the same tensors to the
// last bit.
inline void ExpectSameBytes(const std::string& folder, const std::string& wanted_folder,
                            int64_t step) {
  const auto got = LastOf(folder, step), wanted = LastOf(wanted_folder, step);
  ASSERT_TRUE(got != nullptr && wanted != nullptr);
  ASSERT_EQ(got->entries().size(), wanted->entries().size());
  // Weights and biases of two layers, two slots of each, two powers and the global step.
  ASSERT_GE(wanted->entries().size(), 15u);
  for (const CheckpointReader::Entry& entry : wanted->entries()) {
    const auto ours = got->Read(entry.name), theirs = wanted->Read(entry.name);
    ASSERT_TRUE(ours.ok() && theirs.ok()) << entry.name << ours.status() << theirs.status();
    ASSERT_EQ(ours->dtype(), theirs->dtype()) << entry.name;
    ASSERT_EQ(ours->num_bytes(), theirs->num_bytes()) << entry.name;
    EXPECT_EQ(std::memcmp(ours->raw_data(), theirs->raw_data(), ours->num_bytes()), 0)
        << entry.name << ": " << ours->DebugString() << ", not " << theirs->DebugString();
  }
}

}  // namespace millrace::mnist

#endif  // EXAMPLES_MNIST_SAME_CHECKPOINTS_H_
