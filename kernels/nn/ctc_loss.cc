// SPDX-License-Identifier: Apache-2.0
// CTCLoss: minus the logarithm of the probability that a network's outputs, read in any alignment,
// say the labels, and its gradient (Graves, "Supervised Sequence Labelling with Recurrent Neural
// Networks", chapter 7; equations are numbered as there). The last class is the blank.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/nn/ctc.h"

namespace millrace {
namespace {

// Labels with blanks before, between and after them: 2 * labels + 1.
using Path = std::vector<int32_t>;

struct CtcOptions {
  bool collapse, merge, ignore_longer;
};

std::string Listed(std::span<const int32_t> labels) {
  std::vector<std::string> texts;
  for (const int32_t label : labels) texts.push_back(StrCat(label));
  return StrJoin(texts, ",");
}

// The sums over all alignments of one example.
template <typename T>
class Alignments {
 public:
  // `path` outlives it; `times` >= 1.
  Alignments(const Path& path, int64_t times, int64_t classes, bool merge)
      : path_(path),
        count_(static_cast<int64_t>(path.size())),
        times_(times),
        classes_(classes),
        merge_(merge),
        y_(static_cast<std::size_t>(times * classes)),
        alpha_(static_cast<std::size_t>(times * count_), kLogZero<T>),
        beta_(static_cast<std::size_t>(times * count_), kLogZero<T>),
        sums_(static_cast<std::size_t>(classes)) {}

  // Logits of a time lie `stride` after those of the time before, and so do gradients.
  T Loss(const T* logits, int64_t stride, T* gradient) {
    for (int64_t t = 0; t < times_; ++t) Softmax(logits + t * stride, y_.data() + t * classes_);
    Forward();
    Backward();
    T total = kLogZero<T>;
    for (int64_t u = 0; u < count_; ++u) total = LogSum(total, alpha_[u] + beta_[u]);
    for (int64_t t = 0; t < times_; ++t) Gradient(t, total, gradient + t * stride);
    return -total;
  }

 private:
  void Softmax(const T* logits, T* y) const {
    const T most = *std::max_element(logits, logits + classes_);
    T sum = 0;
    for (int64_t k = 0; k < classes_; ++k) sum += y[k] = std::exp(logits[k] - most);
    for (int64_t k = 0; k < classes_; ++k) y[k] /= sum;
  }

  T LogY(int64_t t, int64_t u) const { return std::log(y_[t * classes_ + path_[u]]); }
  bool Blank(int64_t u) const { return path_[u] == classes_ - 1; }
  // Whether a path may stay at u from one time to the next, and go from u to u + 2.
  bool Stays(int64_t u) const { return merge_ || Blank(u); }
  bool Skips(int64_t u) const {
    return u >= 0 && u + 2 < count_ && !Blank(u) && !(merge_ && path_[u] == path_[u + 2]);
  }

  // Equations 7.5 to 7.9. Positions from which the end cannot be reached in time are left out.
  void Forward() {
    for (int64_t u = 0; u < std::min<int64_t>(count_, 2); ++u) alpha_[u] = LogY(0, u);
    for (int64_t t = 1; t < times_; ++t) {
      const T* const before = alpha_.data() + (t - 1) * count_;
      T* const now = alpha_.data() + t * count_;
      const int64_t end = std::min(count_, 2 * (t + 1));
      for (int64_t u = std::max<int64_t>(0, count_ - 2 * (times_ - t)); u < end; ++u) {
        T sum = Stays(u) ? before[u] : kLogZero<T>;
        if (u > 0) sum = LogSum(sum, before[u - 1]);
        if (Skips(u - 2)) sum = LogSum(sum, before[u - 2]);
        now[u] = LogY(t, u) + sum;
      }
    }
  }

  // Equations 7.13 to 7.15.
  void Backward() {
    T* const last = beta_.data() + (times_ - 1) * count_;
    for (int64_t u = std::max<int64_t>(0, count_ - 2); u < count_; ++u) last[u] = 0;
    for (int64_t t = times_ - 2; t >= 0; --t) {
      const T* const after = beta_.data() + (t + 1) * count_;
      T* const now = beta_.data() + t * count_;
      const int64_t end = std::min(count_, 2 * (t + 1));
      for (int64_t u = std::max<int64_t>(0, count_ - 2 * (times_ - t)); u < end; ++u) {
        T sum = Stays(u) ? after[u] + LogY(t + 1, u) : kLogZero<T>;
        if (u + 1 < count_) sum = LogSum(sum, after[u + 1] + LogY(t + 1, u + 1));
        if (Skips(u)) sum = LogSum(sum, after[u + 2] + LogY(t + 1, u + 2));
        now[u] = sum;
      }
    }
  }

  // Equations 7.28 to 7.34; y itself if no alignment is possible.
  void Gradient(int64_t t, T total, T* gradient) {
    const T* const y = y_.data() + t * classes_;
    std::copy_n(y, classes_, gradient);
    if (total == kLogZero<T>) return;
    std::fill(sums_.begin(), sums_.end(), kLogZero<T>);
    for (int64_t u = 0; u < count_; ++u) {
      T& sum = sums_[path_[u]];
      sum = LogSum(sum, alpha_[t * count_ + u] + beta_[t * count_ + u]);
    }
    for (int64_t k = 0; k < classes_; ++k) gradient[k] -= std::exp(sums_[k] - total);
  }

  const Path& path_;
  const int64_t count_, times_, classes_;
  const bool merge_;
  std::vector<T> y_, alpha_, beta_, sums_;
};

// Input shapes that fit each other, and what follows from them.
struct CtcSizes {
  int64_t times, batch, classes;
};

StatusOr<CtcSizes> CheckSizes(KernelContext& ctx) {
  const Tensor &logits = ctx.input(0), &indices = ctx.input(1), &values = ctx.input(2),
               &lengths = ctx.input(3);
  if (logits.rank() != 3) return errors::InvalidArgument("inputs is not a 3-Tensor");
  if (lengths.rank() != 1) return errors::InvalidArgument("sequence_length is not a vector");
  if (indices.rank() != 2) return errors::InvalidArgument("labels_indices is not a matrix");
  if (values.rank() != 1) return errors::InvalidArgument("labels_values is not a vector");
  const CtcSizes sizes{logits.dim(0), logits.dim(1), logits.dim(2)};
  if (sizes.classes >= INT32_MAX) {
    return errors::InvalidArgument("num_classes cannot exceed max int");
  }
  if (lengths.dim(0) != sizes.batch) {
    return errors::InvalidArgument("len(sequence_length) != batch_size.  len(sequence_length):  ",
                                   lengths.dim(0), " batch_size: ", sizes.batch);
  }
  if (indices.dim(0) != values.dim(0)) {
    return errors::InvalidArgument(
        "labels_indices and labels_values must contain the same number of rows, but saw shapes: ",
        indices.shape().DebugString(), " vs. ", values.shape().DebugString());
  }
  if (indices.dim(0) > 0 && indices.dim(1) != 2) {
    return errors::InvalidArgument("labels_indices must have 2 columns, got shape ",
                                   indices.shape().DebugString());
  }
  if (sizes.batch == 0) return errors::InvalidArgument("batch_size must not be 0");
  if (sizes.classes == 0) return errors::InvalidArgument("num_classes must not be 0");
  for (int64_t b = 0; b < sizes.batch; ++b) {
    const int32_t length = lengths.data<int32_t>()[b];
    if (length > sizes.times) {
      return errors::InvalidArgument("sequence_length(", b, ") <= ", sizes.times);
    }
    if (length < 0) return errors::InvalidArgument("seq_len(", b, ") < 0");
  }
  return sizes;
}

// Where each example's labels begin among all; one more at the end. The rows are in order.
StatusOr<std::vector<int64_t>> FindExamples(const Tensor& indices, int64_t batch) {
  std::vector<int64_t> begins(static_cast<std::size_t>(batch + 1), 0);
  const int64_t* const at = indices.data<int64_t>();
  for (int64_t i = 0; i < indices.dim(0); ++i) {
    const int64_t b = at[2 * i], position = at[2 * i + 1];
    if (b < 0 || b >= batch || position < 0) {
      return errors::InvalidArgument("label SparseTensor is not valid: indices[", i, "] = [", b,
                                     ",", position, "] is out of bounds: need 0 <= index < [",
                                     batch, ",...]");
    }
    if (i > 0 && std::pair(at[2 * i - 2], at[2 * i - 1]) >= std::pair(b, position)) {
      const bool again = at[2 * i - 2] == b && at[2 * i - 1] == position;
      return errors::InvalidArgument(
          "label SparseTensor is not valid: indices[", i, "] = [", b, ",", position, "] is ",
          again ? "repeated"
                : "out of order. Many sparse ops require sorted indices.\n    Use "
                  "`tf.sparse.reorder` to create a correctly ordered copy.\n\n");
    }
    ++begins[b + 1];
  }
  for (int64_t b = 0; b < batch; ++b) begins[b + 1] += begins[b];
  return begins;
}

// The path of example `b`.
StatusOr<Path> PathOf(std::span<const int32_t> labels, int64_t b, int64_t classes, int64_t length,
                      const CtcOptions& options) {
  if (labels.empty()) return errors::InvalidArgument("Labels length is zero in batch ", b);
  const auto blank = static_cast<int32_t>(classes - 1);
  Path kept;
  bool finished = false;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (i > 0 && options.collapse && labels[i] == labels[i - 1]) continue;
    if (labels[i] >= blank) {
      finished = true;
    } else if (finished) {
      return errors::InvalidArgument(
          "Saw a non-null label (index >= num_classes - 1) following a null label, batch: ", b,
          " num_classes: ", classes, " labels: ", Listed(labels),
          " labels seen so far: ", Listed(kept));
    } else {
      kept.push_back(labels[i]);
    }
  }
  if (std::any_of(kept.begin(), kept.end(), [](int32_t label) { return label < 0; })) {
    return errors::InvalidArgument("All labels must be nonnegative integers, batch: ", b,
                                   " labels: ", Listed(kept));
  }
  if (!options.ignore_longer && static_cast<int64_t>(labels.size()) > length) {
    return errors::InvalidArgument("Not enough time for target transition sequence (required: ",
                                   labels.size(), ", available: ", length, ")", b,
                                   "You can turn this error into a warning by using the flag "
                                   "ignore_longer_outputs_than_inputs");
  }
  Path path;
  for (const int32_t label : kept) {
    path.push_back(blank);
    path.push_back(label);
  }
  path.push_back(blank);
  return path;
}

template <typename T>
class CtcLossKernel : public Kernel {
 public:
  explicit CtcLossKernel(KernelConstruction& c)
      : Kernel(c),
        options_{c.attr<bool>("preprocess_collapse_repeated"), c.attr<bool>("ctc_merge_repeated"),
                 c.attr<bool>("ignore_longer_outputs_than_inputs")} {}

  Status Compute(KernelContext& ctx) override {
    const Tensor& logits = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const CtcSizes sizes, CheckSizes(ctx));
    MR_ASSIGN_OR_RETURN(const std::vector<int64_t> begins, FindExamples(ctx.input(1), sizes.batch));
    const int32_t* const labels = ctx.input(2).data<int32_t>();
    const int32_t* const lengths = ctx.input(3).data<int32_t>();
    std::vector<Path> paths(static_cast<std::size_t>(sizes.batch));
    for (int64_t b = 0; b < sizes.batch; ++b) {
      const auto count = static_cast<std::size_t>(begins[b + 1] - begins[b]);
      MR_ASSIGN_OR_RETURN(
          paths[b], PathOf({labels + begins[b], count}, b, sizes.classes, lengths[b], options_));
    }
    MR_ASSIGN_OR_RETURN(Tensor * loss, ctx.AllocateOutput(0, Shape({sizes.batch})));
    MR_ASSIGN_OR_RETURN(Tensor * gradient, ctx.AllocateOutput(1, logits.shape()));
    std::fill_n(loss->data<T>(), sizes.batch, T(0));
    std::fill_n(gradient->data<T>(), gradient->num_elements(), T(0));
    constexpr double kNanosPerState = 60;
    ctx.ParallelFor(sizes.batch,
                    kNanosPerState * static_cast<double>(sizes.times * (sizes.classes + 4)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t b = begin; b < end; ++b) {
                        // Neither loss nor gradient where there is no time for all labels.
                        if (lengths[b] == 0 || begins[b + 1] - begins[b] > lengths[b]) continue;
                        Alignments<T> sums(paths[b], lengths[b], sizes.classes, options_.merge);
                        loss->data<T>()[b] = sums.Loss(logits.data<T>() + b * sizes.classes,
                                                       sizes.batch * sizes.classes,
                                                       gradient->data<T>() + b * sizes.classes);
                      }
                    });
    return OkStatus();
  }

 private:
  const CtcOptions options_;
};

}  // namespace

void RegisterCtcLossKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("CTCLoss").Type<float>("T"), &MakeKernel<CtcLossKernel<float>>);
  registry.Register(KernelDef("CTCLoss").Type<double>("T"), &MakeKernel<CtcLossKernel<double>>);
}

}  // namespace millrace
