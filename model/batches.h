// SPDX-License-Identifier: Apache-2.0
// Batches of samples that lie in memory.
#ifndef MODEL_BATCHES_H_
#define MODEL_BATCHES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "model/steps.h"

namespace millrace::model {

// InvalidArgument unless there is at least one sample, all tensors have as many and weights are
// finite numbers; there may be no y, and weights may be not initialised.
Status CheckSamples(const Samples& x, std::span<const Tensor> y, const Tensor& sample_weight);

// InvalidArgument, naming the class, unless all weights are finite.
Status CheckClassWeights(const std::map<int64_t, double>& class_weight);

// The weight of each sample from that of its class.
StatusOr<Tensor> WeightsOfClasses(const std::map<int64_t, double>& class_weight,
                                  std::span<const Tensor> y);

// Samples [begin, end) of all of them.
Batch RowsOf(const Batch& all, int64_t begin, int64_t end);

// Goes through samples once, batch by batch; the last one may be smaller.
class Batches {
 public:
  // `order_seed`: of the order of the first pass; none: as they are.
  Batches(Batch all, int64_t batch_size, std::optional<uint64_t> order_seed = {});

  int64_t rows() const { return rows_; }
  int64_t count() const { return rows_ / batch_size_ + (rows_ % batch_size_ != 0); }
  bool at_end() const { return next_ >= rows_; }
  const Batch& all() const { return all_; }
  // The next ones in one. Not at the end. Rows are shared with the samples, or copied where there
  // is an order.
  Batch Next(int64_t batches = 1);
  int64_t batch_size() const { return batch_size_; }
  // So many batches are left of this pass.
  int64_t left() const {
    return (rows_ - next_) / batch_size_ + ((rows_ - next_) % batch_size_ != 0);
  }
  // Begins another pass, in another order if there is one.
  void Restart();
  // As if so many passes had been made before. At the begin of the first.
  void SkipPasses(int64_t passes);
  // Number of the pass, the next sample, and how many samples there are in all and in a batch.
  Tensor Position() const;
  // InvalidArgument if it is of samples or batches of other numbers.
  Status SetPosition(const Tensor& position);

 private:
  void Shuffle();

  const Batch all_;
  const int64_t rows_, batch_size_;
  const std::optional<uint64_t> order_seed_;
  uint64_t pass_ = 0;
  int64_t next_ = 0;
  std::vector<int64_t> order_;
};

}  // namespace millrace::model

#endif  // MODEL_BATCHES_H_
