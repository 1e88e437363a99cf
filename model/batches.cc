// SPDX-License-Identifier: Apache-2.0
#include "model/batches.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "base/errors.h"
#include "base/options/option_checks.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace::model {
namespace {

// The rows of one axis in another order.
Tensor Gather(const Tensor& from, std::span<const int64_t> rows) {
  Shape shape = from.shape();
  shape.SetDim(0, static_cast<int64_t>(rows.size()));
  Tensor to(from.dtype(), shape);
  if (rows.empty() || from.num_elements() == 0) return to;
  const int64_t size = from.num_elements() / from.dim(0);
  if (from.dtype() == kString) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto* row = from.data<std::string>() + rows[i] * size;
      std::copy(row, row + size, to.data<std::string>() + static_cast<int64_t>(i) * size);
    }
    return to;
  }
  const std::size_t bytes = static_cast<std::size_t>(size) * DataTypeSize(from.dtype());
  const char* in = static_cast<const char*>(from.raw_data());
  char* out = static_cast<char*>(to.raw_data());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(out + i * bytes, in + static_cast<std::size_t>(rows[i]) * bytes, bytes);
  }
  return to;
}

template <typename F>
Batch ForEach(const Batch& all, const F& function) {
  Batch batch;
  for (const Tensor& x : all.x) batch.x.push_back(function(x));
  for (const Tensor& y : all.y) batch.y.push_back(function(y));
  if (all.sample_weight.IsInitialized()) batch.sample_weight = function(all.sample_weight);
  return batch;
}

// The class of one row of labels.
template <typename T>
int64_t ClassOf(const T* row, int64_t size) {
  if (size == 1) {
    constexpr auto kNone = std::numeric_limits<int64_t>::min();
    // Beyond what a number of a class can be.
    if (!(std::abs(static_cast<double>(row[0])) < 9e18)) return kNone;
    return static_cast<int64_t>(row[0]);
  }
  return std::max_element(row, row + size) - row;
}

}  // namespace

Status CheckSamples(const Samples& x, std::span<const Tensor> y, const Tensor& sample_weight) {
  if (x.tensors().empty()) return errors::InvalidArgument("there is no x");
  std::vector<std::pair<std::string, const Tensor*>> all;
  for (const Tensor& tensor : x.tensors()) all.emplace_back("x", &tensor);
  for (const Tensor& tensor : y) all.emplace_back("y", &tensor);
  if (sample_weight.dtype() != DataType::kInvalid)
    all.emplace_back("sample_weight", &sample_weight);
  bool differ = false;
  std::string sizes;
  for (const auto& [name, tensor] : all) {
    if (!tensor->IsInitialized()) {
      return errors::InvalidArgument(name, " is a tensor without a value");
    }
    if (tensor->rank() == 0) {
      return errors::InvalidArgument(name, " is one number; its first axis must be the samples");
    }
    differ = differ || tensor->dim(0) != all[0].second->dim(0);
    StrAppend(&sizes, sizes.empty() ? "" : "; ", "'", name, "' sizes: ", tensor->dim(0));
  }
  if (differ) {
    return errors::InvalidArgument("Data cardinality is ambiguous. Make sure all arrays contain ",
                                   "the same number of samples. ", sizes);
  }
  if (all[0].second->dim(0) == 0) return errors::InvalidArgument("x has no samples");
  if (sample_weight.IsInitialized() && sample_weight.dtype() != kFloat) {
    return errors::InvalidArgument("sample_weight must be of type float, not ",
                                   DataTypeName(sample_weight.dtype()));
  }
  if (!sample_weight.IsInitialized()) return OkStatus();
  const auto weights = sample_weight.flat<float>();
  const auto bad = std::find_if(weights.begin(), weights.end(),
                                [](const float weight) { return !std::isfinite(weight); });
  if (bad == weights.end()) return OkStatus();
  const int64_t of_sample = sample_weight.num_elements() / sample_weight.dim(0);
  return errors::InvalidArgument("sample_weight of sample ", (bad - weights.begin()) / of_sample,
                                 " must be a finite number, not ", *bad);
}

Status CheckClassWeights(const std::map<int64_t, double>& class_weight) {
  OptionChecks checks("class_weight");
  for (const auto& [label, weight] : class_weight) {
    checks.Finite(StrCat("the weight of class ", label), weight);
  }
  return checks.status();
}

StatusOr<Tensor> WeightsOfClasses(const std::map<int64_t, double>& class_weight,
                                  std::span<const Tensor> labels) {
  if (labels.size() != 1) {
    return errors::InvalidArgument("class_weight is for a model with one output, and there are ",
                                   labels.size(), " tensors of labels: take sample_weight");
  }
  const Tensor& y = labels[0];
  if (y.rank() == 0 || y.rank() > 2) {
    return errors::InvalidArgument(
        "class_weight needs one label, or one row of classes, for each sample; y is of shape ",
        y.shape().DebugString());
  }
  const int64_t rows = y.dim(0), size = y.rank() == 1 ? 1 : y.dim(1);
  Tensor weights(kFloat, Shape({rows}));
  const auto fill = [&](const auto* data) {
    for (int64_t i = 0; i < rows; ++i) {
      const auto found = class_weight.find(ClassOf(data + i * size, size));
      weights.data<float>()[i] =
          found == class_weight.end() ? 1.0f : static_cast<float>(found->second);
    }
  };
  if (y.dtype() == kFloat) {
    fill(y.data<float>());
  } else if (y.dtype() == kDouble) {
    fill(y.data<double>());
  } else if (y.dtype() == kInt32) {
    fill(y.data<int32_t>());
  } else if (y.dtype() == kInt64) {
    fill(y.data<int64_t>());
  } else if (y.dtype() == kUint8) {
    fill(y.data<uint8_t>());
  } else {
    return errors::InvalidArgument("class_weight takes labels of floats or integers, not of type ",
                                   DataTypeName(y.dtype()));
  }
  return weights;
}

Batch RowsOf(const Batch& all, int64_t begin, int64_t end) {
  return ForEach(all, [&](const Tensor& tensor) { return tensor.Slice(begin, end); });
}

Batches::Batches(Batch all, int64_t batch_size, std::optional<uint64_t> order_seed)
    : all_(std::move(all)),
      rows_(all_.x[0].dim(0)),
      batch_size_(batch_size),
      order_seed_(order_seed) {
  Shuffle();
}

Batch Batches::Next(int64_t batches) {
  const int64_t begin = next_;
  next_ = batches >= left() ? rows_ : next_ + batches * batch_size_;
  if (!order_seed_) return RowsOf(all_, begin, next_);
  const std::span<const int64_t> rows(order_.data() + begin,
                                      static_cast<std::size_t>(next_ - begin));
  return ForEach(all_, [&](const Tensor& tensor) { return Gather(tensor, rows); });
}

void Batches::Restart() {
  next_ = 0;
  ++pass_;
  Shuffle();
}

void Batches::SkipPasses(int64_t passes) {
  pass_ += static_cast<uint64_t>(passes);
  Shuffle();
}

Tensor Batches::Position() const {
  return Tensor::FromValues<int64_t>({static_cast<int64_t>(pass_), next_, rows_, batch_size_});
}

Status Batches::SetPosition(const Tensor& position) {
  if (position.dtype() != kInt64 || position.num_elements() != 4) {
    return errors::InvalidArgument("the position in the data is of another kind of data: it is ",
                                   position.DebugString(4), ", and the samples are in memory");
  }
  const int64_t* p = position.data<int64_t>();
  if (p[0] < 0 || p[1] < 0 || p[1] > rows_ || p[2] != rows_ || p[3] != batch_size_) {
    return errors::InvalidArgument("the position in the data is one among ", p[2],
                                   " samples in batches of ", p[3], "; now there are ", rows_,
                                   " in batches of ", batch_size_, ": go on with the same data");
  }
  pass_ = static_cast<uint64_t>(p[0]);
  next_ = p[1];
  Shuffle();
  return OkStatus();
}

// Of the pass's number alone, whatever the passes before did.
void Batches::Shuffle() {
  if (!order_seed_) return;
  order_.resize(static_cast<std::size_t>(rows_));
  std::iota(order_.begin(), order_.end(), 0);
  std::seed_seq seed{*order_seed_, pass_};
  std::mt19937_64 random(seed);
  for (std::size_t i = order_.size(); i > 1; --i) {
    std::swap(order_[i - 1], order_[random() % i]);
  }
}

}  // namespace millrace::model
