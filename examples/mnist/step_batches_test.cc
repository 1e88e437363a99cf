// SPDX-License-Identifier: Apache-2.0
#include "examples/mnist/step_batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "millrace/digits.h"

namespace millrace::mnist {
namespace {

// Images that tell their number.
Examples Numbered(int64_t n) {
  Examples e{Tensor(kFloat, {n, kDigitPixels}), Tensor(kInt64, {n}),
             Tensor(kFloat, {n, kDigitClasses})};
  std::memset(e.one_hot.raw_data(), 0, e.one_hot.num_bytes());
  for (int64_t i = 0; i < n; ++i) {
    std::fill_n(e.images.data<float>() + i * kDigitPixels, kDigitPixels, static_cast<float>(i));
    e.labels.data<int64_t>()[i] = i % kDigitClasses;
    e.one_hot.data<float>()[i * kDigitClasses + i % kDigitClasses] = 1;
  }
  return e;
}

std::vector<int64_t> NumbersOf(const BatchSource::Batch& batch) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < batch.labels.num_elements(); ++i) {
    const auto number = static_cast<int64_t>(batch.images.data<float>()[i * kDigitPixels]);
    EXPECT_EQ(batch.labels.data<int64_t>()[i], number % kDigitClasses);
    EXPECT_EQ(batch.one_hot.data<float>()[i * kDigitClasses + number % kDigitClasses], 1);
    numbers.push_back(number);
  }
  return numbers;
}

TEST(StepBatches, AreTheSameWhateverWasAskedForBefore) {
  const Examples examples = Numbered(23);
  StepBatches all(examples, 5, 42);
  std::vector<std::vector<int64_t>> in_order;
  for (int64_t step = 0; step < 40; ++step) in_order.push_back(NumbersOf(all.At(step)));
  for (const int64_t first : {39, 0, 17, 4, 5, 22}) {
    StepBatches late(examples, 5, 42);
    for (int64_t step = first; step < 40; ++step) {
      EXPECT_EQ(NumbersOf(late.At(step)), in_order[static_cast<std::size_t>(step)]) << step;
    }
    EXPECT_EQ(NumbersOf(late.At(3)), in_order[3]) << "back from " << first;
  }
}

TEST(StepBatches, GoThroughAllExamplesInEveryPassInAnotherOrder) {
  const Examples examples = Numbered(20);
  StepBatches batches(examples, 5, 42);
  std::vector<std::vector<int64_t>> passes(3);
  for (int64_t step = 0; step < 12; ++step) {
    std::vector<int64_t>& pass = passes[static_cast<std::size_t>(step / 4)];
    for (const int64_t number : NumbersOf(batches.At(step))) pass.push_back(number);
  }
  EXPECT_NE(passes[0], passes[1]);
  EXPECT_NE(passes[1], passes[2]);
  for (std::vector<int64_t>& pass : passes) {
    std::sort(pass.begin(), pass.end());
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(pass[static_cast<std::size_t>(i)], i);
  }
}

TEST(StepBatches, DifferBySeed) {
  const Examples examples = Numbered(50);
  StepBatches one(examples, 25, 42), other(examples, 25, 43);
  EXPECT_NE(NumbersOf(one.At(0)), NumbersOf(other.At(0)));
}

}  // namespace
}  // namespace millrace::mnist
