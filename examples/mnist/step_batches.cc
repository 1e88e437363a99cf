// SPDX-License-Identifier: Apache-2.0
#include "examples/mnist/step_batches.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

namespace millrace::mnist {

StepBatches::StepBatches(const Examples& examples, int batch_size, uint64_t seed)
    : examples_(examples),
      batch_size_(batch_size),
      seed_(seed),
      order_(static_cast<std::size_t>(examples.size())) {}

void StepBatches::Permute(int64_t pass) {
  if (pass == pass_) return;
  pass_ = pass;
  const auto low = [](uint64_t value) { return static_cast<uint32_t>(value); };
  std::seed_seq seeds{low(seed_), low(seed_ >> 32), low(static_cast<uint64_t>(pass)),
                      low(static_cast<uint64_t>(pass) >> 32)};
  std::mt19937_64 random(seeds);
  std::iota(order_.begin(), order_.end(), 0);
  std::shuffle(order_.begin(), order_.end(), random);
}

BatchSource::Batch StepBatches::At(int64_t number) {
  BatchSource::Batch batch{Tensor(kFloat, {batch_size_, kDigitPixels}),
                           Tensor(kInt64, {batch_size_}),
                           Tensor(kFloat, {batch_size_, kDigitClasses})};
  float* images = batch.images.data<float>();
  int64_t* labels = batch.labels.data<int64_t>();
  float* one_hot = batch.one_hot.data<float>();
  const int64_t size = examples_.size();
  for (int64_t i = 0; i < batch_size_; ++i) {
    const int64_t place = number * batch_size_ + i;
    Permute(place / size);
    const int64_t row = order_[static_cast<std::size_t>(place % size)];
    std::memcpy(images + i * kDigitPixels, examples_.images.data<float>() + row * kDigitPixels,
                kDigitPixels * sizeof(float));
    labels[i] = examples_.labels.data<int64_t>()[row];
    std::memcpy(one_hot + i * kDigitClasses, examples_.one_hot.data<float>() + row * kDigitClasses,
                kDigitClasses * sizeof(float));
  }
  return batch;
}

}  // namespace millrace::mnist
