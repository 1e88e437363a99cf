// SPDX-License-Identifier: Apache-2.0
// Numbers one after the other, for methods that reject some: as TensorFlow takes them, which is
// from the end of each block of two.
#ifndef KERNELS_RANDOM_SAMPLE_STREAM_H_
#define KERNELS_RANDOM_SAMPLE_STREAM_H_

#include <algorithm>

#include "base/errors.h"
#include "base/random.h"
#include "kernels/random/random_distributions.h"

namespace millrace {

// Of one distribution. Streams of different distributions may share a generator.
template <typename Distribution>
class SampleStream {
 public:
  explicit SampleStream(Philox* generator) : generator_(generator) {}
  double operator()() {
    if (left_ == 0) {
      Distribution()((*generator_)(), block_);
      left_ = 2;
    }
    return block_[--left_];
  }

 private:
  Philox* const generator_;
  double block_[2] = {};
  int left_ = 0;
};

// Each output has a stretch of its own, so that what it is does not depend on the others.
inline Philox GeneratorOfOutput(const Philox& base, int64_t output,
                                int64_t blocks = kReservedPerOutput) {
  Philox generator = base;
  generator.Skip(static_cast<uint64_t>(output) * static_cast<uint64_t>(blocks));
  return generator;
}

// The last dimensions of the samples are those of the parameters.
inline Status CheckEndsWith(const Shape& samples, const Shape& parameters) {
  const auto all = samples.dims(), last = parameters.dims();
  if (last.size() <= all.size() && std::equal(last.rbegin(), last.rend(), all.rbegin())) {
    return OkStatus();
  }
  return errors::InvalidArgument("Shape passed in must end with broadcasted shape.");
}

}  // namespace millrace

#endif  // KERNELS_RANDOM_SAMPLE_STREAM_H_
