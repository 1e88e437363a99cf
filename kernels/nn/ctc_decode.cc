// SPDX-License-Identifier: Apache-2.0
// Labels from the outputs of a network at each time: CTCGreedyDecoder takes the likeliest class of
// every time, CTCBeamSearchDecoder looks for the likeliest labels, whatever their alignment
// (Graves, "Supervised Sequence Labelling with Recurrent Neural Networks", section 7.5).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/nn/ctc.h"

namespace millrace {
namespace {

// Labels of one path of one example.
using Labels = std::vector<int32_t>;

struct DecodeSizes {
  int64_t times, batch, classes;
};

StatusOr<DecodeSizes> CheckSizes(KernelContext& ctx) {
  const Tensor &logits = ctx.input(0), &lengths = ctx.input(1);
  if (logits.rank() != 3) return errors::InvalidArgument("inputs is not a 3-Tensor");
  if (logits.num_elements() == 0) return errors::InvalidArgument("inputs must not be empty");
  if (lengths.rank() != 1) return errors::InvalidArgument("sequence_length is not a vector");
  const DecodeSizes sizes{logits.dim(0), logits.dim(1), logits.dim(2)};
  if (lengths.dim(0) != sizes.batch) {
    return errors::FailedPrecondition(
        "len(sequence_length) != batch_size.  len(sequence_length):  ", lengths.dim(0),
        " batch_size: ", sizes.batch);
  }
  for (int64_t b = 0; b < sizes.batch; ++b) {
    if (lengths.data<int32_t>()[b] > sizes.times) {
      return errors::FailedPrecondition("sequence_length(", b, ") <= ", sizes.times);
    }
  }
  if (sizes.classes >= INT32_MAX) {
    return errors::InvalidArgument("num_classes cannot exceed max int");
  }
  return sizes;
}

// decoded[b][p] are the labels of path p of example b; `paths` of each. Sparse tensors: outputs p,
// paths + p and 2 * paths + p.
Status StorePaths(KernelContext& ctx, const std::vector<std::vector<Labels>>& decoded, int paths) {
  for (int p = 0; p < paths; ++p) {
    int64_t count = 0, longest = 0;
    for (const auto& example : decoded) {
      const auto length = static_cast<int64_t>(example[p].size());
      count += length;
      longest = std::max(longest, length);
    }
    MR_ASSIGN_OR_RETURN(Tensor * indices, ctx.AllocateOutput(p, Shape({count, 2})));
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(paths + p, Shape({count})));
    MR_ASSIGN_OR_RETURN(Tensor * shape, ctx.AllocateOutput(2 * paths + p, Shape({2})));
    int64_t* index = indices->data<int64_t>();
    int64_t* value = values->data<int64_t>();
    for (std::size_t b = 0; b < decoded.size(); ++b) {
      const Labels& labels = decoded[b][p];
      for (std::size_t t = 0; t < labels.size(); ++t) {
        *index++ = static_cast<int64_t>(b);
        *index++ = static_cast<int64_t>(t);
        *value++ = labels[t];
      }
    }
    shape->data<int64_t>()[0] = static_cast<int64_t>(decoded.size());
    shape->data<int64_t>()[1] = longest;
  }
  return OkStatus();
}

template <typename T>
class GreedyKernel : public Kernel {
 public:
  explicit GreedyKernel(KernelConstruction& c)
      : Kernel(c), merge_(c.attr<bool>("merge_repeated")), blank_(c.attr<int64_t>("blank_index")) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const DecodeSizes sizes, CheckSizes(ctx));
    const int64_t blank = blank_ < 0 ? sizes.classes + blank_ : blank_;
    if (blank < 0 || blank >= sizes.classes) {
      return errors::InvalidArgument("blank_index expected to be between ", -sizes.classes, " and ",
                                     sizes.classes - 1, " but was ", blank_);
    }
    MR_ASSIGN_OR_RETURN(Tensor * scores, ctx.AllocateOutput(3, Shape({sizes.batch, 1})));
    const T* const logits = ctx.input(0).data<T>();
    const int32_t* const lengths = ctx.input(1).data<int32_t>();
    std::vector<std::vector<Labels>> decoded(static_cast<std::size_t>(sizes.batch));
    for (auto& example : decoded) example.resize(1);
    ctx.ParallelFor(sizes.batch, static_cast<double>(sizes.times * sizes.classes),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t b = begin; b < end; ++b) {
                        T score = 0;
                        int64_t before = -1;
                        for (int64_t t = 0; t < lengths[b]; ++t) {
                          const T* const row = logits + (t * sizes.batch + b) * sizes.classes;
                          const int64_t best = std::max_element(row, row + sizes.classes) - row;
                          score -= row[best];
                          if (best != blank && !(merge_ && best == before)) {
                            decoded[b][0].push_back(static_cast<int32_t>(best));
                          }
                          before = best;
                        }
                        scores->data<T>()[b] = score;
                      }
                    });
    return StorePaths(ctx, decoded, 1);
  }

 private:
  const bool merge_;
  const int64_t blank_;
};

// Logarithms of the probabilities of labels at a time: of all alignments, and of those that end in
// a blank or in the last label.
template <typename T>
struct Chances {
  T total = kLogZero<T>, blank = kLogZero<T>, label = kLogZero<T>;
};

// Labels that were looked at: those of the parent and one more.
template <typename T>
struct Beam {
  Beam* parent = nullptr;
  int32_t label = -1;
  Chances<T> before, now;  // at the last time and at this one
  std::vector<Beam*> children;

  bool active() const { return now.total != kLogZero<T>; }
  // A NaN goes last, so that there is an order.
  T rank() const { return now.total == now.total ? now.total : kLogZero<T>; }
};

template <typename T>
class BeamSearch {
 public:
  BeamSearch(int64_t classes, int64_t width)
      : classes_(classes), width_(width), child_of_(static_cast<std::size_t>(classes), nullptr) {
    beams_.emplace_back();
    beams_.front().now = {T(0), T(0), kLogZero<T>};
    leaves_.push_back(&beams_.front());
  }

  void Step(const T* logits) {
    const T most = *std::max_element(logits, logits + classes_);
    T sum = 0;
    for (int64_t k = 0; k < classes_; ++k) sum += std::exp(logits[k] - most);
    const T offset = most + std::log(sum);
    std::vector<Beam<T>*> branches = std::move(leaves_);
    SortByRank(&branches);
    leaves_.clear();
    for (Beam<T>* b : branches) b->before = b->now;
    for (Beam<T>* b : branches) {
      Stay(b, logits, offset);
      Push(b);
    }
    for (Beam<T>* b : branches) {
      if (IsCandidate(b->before.total)) Grow(b, logits, offset);
    }
  }

  int64_t size() const { return static_cast<int64_t>(leaves_.size()); }
  // The likeliest first.
  std::vector<Beam<T>*> Sorted() const {
    std::vector<Beam<T>*> sorted = leaves_;
    SortByRank(&sorted);
    return sorted;
  }

 private:
  static bool Likelier(const Beam<T>* a, const Beam<T>* b) { return a->rank() > b->rank(); }
  static void SortByRank(std::vector<Beam<T>*>* beams) {
    std::stable_sort(beams->begin(), beams->end(), Likelier);
  }

  // leaves_ is a heap with the least likely beam in front.
  void Push(Beam<T>* b) {
    leaves_.push_back(b);
    std::push_heap(leaves_.begin(), leaves_.end(), Likelier);
  }
  bool IsCandidate(T total) const {
    return total > kLogZero<T> && (size() < width_ || total > leaves_.front()->now.total);
  }

  // The same labels: a blank, or the last label once more.
  void Stay(Beam<T>* b, const T* logits, T offset) const {
    if (b->parent != nullptr) {
      if (b->parent->active()) {
        const Chances<T>& parent = b->parent->before;
        const T from = b->label == b->parent->label ? parent.blank : parent.total;
        b->now.label = LogSum(b->now.label, from);
      }
      b->now.label += logits[b->label] - offset;
    }
    b->now.blank = b->before.total + logits[classes_ - 1] - offset;
    b->now.total = LogSum(b->now.blank, b->now.label);
  }

  // One label more.
  void Grow(Beam<T>* b, const T* logits, T offset) {
    for (Beam<T>* child : b->children) child_of_[child->label] = child;
    for (int32_t label = 0; label < classes_ - 1; ++label) {
      Beam<T>* child = child_of_[label];
      if (child != nullptr && child->active()) continue;
      const T from = label == b->label ? b->before.blank : b->before.total;
      const T chance = logits[label] - offset + from;
      if (!IsCandidate(chance)) {
        if (child != nullptr) child->before = child->now = Chances<T>();
        continue;
      }
      if (child == nullptr) {
        child = &beams_.emplace_back();
        child->parent = b;
        child->label = label;
        b->children.push_back(child);
      }
      if (size() == width_) {
        std::pop_heap(leaves_.begin(), leaves_.end(), Likelier);
        leaves_.back()->now = Chances<T>();
        leaves_.pop_back();
      }
      child->now = {chance, kLogZero<T>, chance};
      Push(child);
    }
    for (Beam<T>* child : b->children) child_of_[child->label] = nullptr;
  }

  const int64_t classes_, width_;
  std::deque<Beam<T>> beams_;
  std::vector<Beam<T>*> leaves_;
  std::vector<Beam<T>*> child_of_;  // while a beam grows: its children by label
};

template <typename T>
class BeamSearchKernel : public Kernel {
 public:
  explicit BeamSearchKernel(KernelConstruction& c)
      : Kernel(c),
        merge_(c.attr<bool>("merge_repeated")),
        width_(c.attr<int64_t>("beam_width")),
        paths_(static_cast<int>((c.output_types().size() - 1) / 3)) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const DecodeSizes sizes, CheckSizes(ctx));
    if (paths_ > width_) {
      return errors::InvalidArgument("requested more paths than the beam width.");
    }
    MR_ASSIGN_OR_RETURN(Tensor * scores,
                        ctx.AllocateOutput(3 * paths_, Shape({sizes.batch, paths_})));
    const T* const logits = ctx.input(0).data<T>();
    const int32_t* const lengths = ctx.input(1).data<int32_t>();
    std::vector<std::vector<Labels>> decoded(static_cast<std::size_t>(sizes.batch));
    for (int64_t b = 0; b < sizes.batch; ++b) {
      BeamSearch<T> search(sizes.classes, width_);
      for (int64_t t = 0; t < lengths[b]; ++t) {
        search.Step(logits + (t * sizes.batch + b) * sizes.classes);
      }
      if (search.size() < paths_) {
        return errors::InvalidArgument("Less leaves in the beam search than requested.");
      }
      const std::vector<Beam<T>*> best = search.Sorted();
      for (int p = 0; p < paths_; ++p) {
        decoded[b].push_back(LabelsOf(best[p]));
        scores->data<T>()[b * paths_ + p] = best[p]->now.total;
      }
    }
    return StorePaths(ctx, decoded, paths_);
  }

 private:
  Labels LabelsOf(const Beam<T>* beam) const {
    Labels labels;
    int32_t after = -1;
    for (; beam->parent != nullptr; beam = beam->parent) {
      if (!merge_ || beam->label != after) labels.push_back(beam->label);
      after = beam->label;
    }
    std::reverse(labels.begin(), labels.end());
    return labels;
  }

  const bool merge_;
  const int64_t width_;
  const int paths_;
};

template <typename T>
void RegisterFor(KernelRegistry& r) {
  r.Register(KernelDef("CTCGreedyDecoder").Type<T>("T"), &MakeKernel<GreedyKernel<T>>);
  r.Register(KernelDef("CTCBeamSearchDecoder").Type<T>("T"), &MakeKernel<BeamSearchKernel<T>>);
}

}  // namespace

void RegisterCtcDecodeKernels(KernelRegistry& registry) {
  RegisterFor<float>(registry);
  RegisterFor<double>(registry);
}

}  // namespace millrace
