// SPDX-License-Identifier: Apache-2.0
// Handwritten digits: the real MNIST files, or synthetic ones made on the spot.
#ifndef MILLRACE_DIGITS_H_
#define MILLRACE_DIGITS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

inline constexpr int kDigitPixels = 28 * 28;  // of one image, row-major
inline constexpr int kDigitClasses = 10;      // the digits 0 to 9

// Images with what they show.
struct Examples {
  Tensor images;   // float [n, 784], 0 (paper) to 1 (ink), row-major 28 x 28
  Tensor labels;   // int64 [n], 0 to 9
  Tensor one_hot;  // float [n, 10]
  // Number of examples, n.
  int64_t size() const { return images.dim(0); }
};

// Examples for training and for evaluation.
struct Digits {
  Examples train, validation, test;  // disjoint parts
};

// The four idx files in `dir`, each gzipped (".gz") or plain, or without them mnist.npz as Keras
// hands it out; the first 5,000 training examples become the validation set. NotFound names a
// missing file; DataLoss a truncated or garbled one, with what was expected. Sizes are checked
// before memory is taken.
StatusOr<Digits> LoadDigits(std::string_view dir);
// Only checks that the files are there and well formed.
Status CheckDigits(std::string_view dir);

// How many examples are drawn, and from which seed.
struct SyntheticDigitsOptions {
  uint64_t seed = 1;      // of all three parts; they draw different examples
  int train = 20000,      // number of examples for training
      validation = 5000,  // number for choosing between models
      test = 5000;        // number for the final evaluation
};
// Strokes of ten templates under random slant, scale, shift, thickness and noise; equal
// seeds give equal bits.
Digits SyntheticDigits(const SyntheticDigitsOptions& options = {});

// Endless batches, by their number: every pass over the examples is a permutation of its own, which
// follows from the seed and the number of the pass alone. A program that goes on from a checkpoint
// asks for the batch of its step, whatever the process before it has asked for. Not thread-safe.
// The examples must outlive it.
class BatchSource {
 public:
  // Rows of one step.
  struct Batch {
    Tensor images;   // float of [batch_size, kDigitPixels], 0 to 1
    Tensor labels;   // int64 of [batch_size]
    Tensor one_hot;  // float of [batch_size, kDigitClasses]: the labels
  };
  // `batch_size` is positive, and there is an example at least.
  BatchSource(const Examples& examples, int batch_size, uint64_t seed);
  // The batch of the step `number`, from 0. Takes the time of a permutation where it lies in
  // another pass than the one before.
  Batch At(int64_t number);
  // The first batch, or the one after that which was asked for last.
  Batch Next() { return At(next_); }

 private:
  void Permute(int64_t pass);

  const Examples& examples_;
  const int batch_size_;
  const uint64_t seed_;
  int64_t pass_ = -1;           // whose order that is
  std::vector<int32_t> order_;  // of the examples
  int64_t next_ = 0;
};

}  // namespace millrace

#endif  // MILLRACE_DIGITS_H_
