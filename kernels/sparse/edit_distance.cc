// SPDX-License-Identifier: Apache-2.0
// EditDistance: Levenshtein's distance between the sequences of two sparse tensors, which lie along
// their last axis.
#include "kernels/sparse/edit_distance.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/dtype_dispatch.h"
#include "kernels/kernel.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

using ElementTypes = JoinTypes<NumberTypes, TypeList<bool, std::string>>;

// One of the two: inputs `first` to `first` + 2.
struct Sequences {
  Tensor indices, values, shape;
  std::vector<int64_t> places;  // of each value: the number of its sequence in the output
  std::vector<int64_t> order;   // of values: by sequence, and as they are given within one

  int64_t row(int64_t i, int axis) const {
    return indices.data<int64_t>()[i * indices.dim(1) + axis];
  }
};

Status CheckSequences(const Sequences& s, std::string_view name) {
  if (s.indices.rank() != 2) {
    return errors::InvalidArgument(
        name, "_indices should be a matrix, but got shape: ", s.indices.shape().DebugString());
  }
  if (s.values.rank() != 1) {
    return errors::InvalidArgument(
        name, "_values should be a vector, but got shape: ", s.values.shape().DebugString());
  }
  if (s.shape.rank() != 1) {
    return errors::InvalidArgument(
        name, "_shape should be a vector, but got shape: ", s.shape.shape().DebugString());
  }
  if (s.values.dim(0) != s.indices.dim(0)) {
    return errors::InvalidArgument("Expected ", name, "_values.NumElements == #rows(", name,
                                   "_indices), their shapes are: ", s.values.shape().DebugString(),
                                   " and ", s.indices.shape().DebugString());
  }
  if (s.shape.dim(0) != s.indices.dim(1)) {
    return errors::InvalidArgument("Expected ", name, "_shape.NumElements == #cols(", name,
                                   "_indices), their shapes are: ", s.shape.shape().DebugString(),
                                   " and ", s.indices.shape().DebugString());
  }
  return OkStatus();
}

// A distance for each sequence of either.
StatusOr<Shape> DistancesShape(const Sequences& hypothesis, const Sequences& truth) {
  if (truth.shape.dim(0) < 2) {
    return errors::InvalidArgument(
        "Input SparseTensors must have rank at least 2, but truth_shape rank is: ",
        truth.shape.dim(0));
  }
  if (truth.shape.dim(0) != hypothesis.shape.dim(0)) {
    return errors::InvalidArgument("Expected truth and hypothesis to have matching ranks, but ",
                                   "their shapes are: ", truth.shape.shape().DebugString(), " and ",
                                   hypothesis.shape.shape().DebugString());
  }
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i + 1 < truth.shape.dim(0); ++i) {
    const int64_t a = hypothesis.shape.data<int64_t>()[i], b = truth.shape.data<int64_t>()[i];
    if (a < 0 || b < 0) {
      return errors::InvalidArgument("shapes must not be negative, got ", std::min(a, b));
    }
    sizes.push_back(std::max(a, b));
  }
  return MakeShape(sizes);
}

Status Place(const Shape& out, Sequences* s) {
  const int64_t count = s->indices.dim(0);
  s->places.resize(static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    int64_t place = 0;
    for (int axis = 0; axis < out.rank(); ++axis) {
      const int64_t at = s->row(i, axis);
      if (at < 0 || at >= out.dim(axis)) {
        return errors::InvalidArgument("indices[", i, ",", axis, "] = ", at,
                                       " is outside of the output tensor of shape ",
                                       out.DebugString());
      }
      place = place * out.dim(axis) + at;
    }
    s->places[i] = place;
  }
  s->order.resize(static_cast<std::size_t>(count));
  std::iota(s->order.begin(), s->order.end(), 0);
  std::stable_sort(s->order.begin(), s->order.end(),
                   [s](int64_t a, int64_t b) { return s->places[a] < s->places[b]; });
  return OkStatus();
}

// The values of one sequence after the other.
template <typename T>
class Reader {
 public:
  explicit Reader(const Sequences& s) : s_(s) {}
  bool done() const { return at_ == s_.order.size(); }
  int64_t place() const { return s_.places[s_.order[at_]]; }
  // Those of the sequence at `place`; none if the next one is another.
  void Read(int64_t place, std::vector<const T*>* values) {
    values->clear();
    for (; !done() && this->place() == place; ++at_) {
      values->push_back(s_.values.data<T>() + s_.order[at_]);
    }
  }

 private:
  const Sequences& s_;
  std::size_t at_ = 0;
};

template <typename T>
int64_t Distance(const std::vector<const T*>& from, const std::vector<const T*>& to,
                 std::vector<int64_t>* row) {
  // row[j]: from the values of `from` so far to the first j of `to`.
  row->resize(to.size() + 1);
  std::iota(row->begin(), row->end(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) {
    int64_t diagonal = (*row)[0]++;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const int64_t replaced = diagonal + (*from[i] == *to[j] ? 0 : 1);
      diagonal = (*row)[j + 1];
      (*row)[j + 1] = std::min(replaced, std::min((*row)[j], diagonal) + 1);
    }
  }
  return row->back();
}

class EditDistanceKernel : public Kernel {
 public:
  explicit EditDistanceKernel(KernelConstruction& c)
      : Kernel(c), normalize_(c.attr<bool>("normalize")) {}

  Status Compute(KernelContext& ctx) override {
    Sequences hypothesis{ctx.input(0), ctx.input(1), ctx.input(2), {}, {}};
    Sequences truth{ctx.input(3), ctx.input(4), ctx.input(5), {}, {}};
    MR_RETURN_IF_ERROR(CheckSequences(hypothesis, "hypothesis"));
    MR_RETURN_IF_ERROR(CheckSequences(truth, "truth"));
    MR_ASSIGN_OR_RETURN(const Shape shape, DistancesShape(hypothesis, truth));
    if (shape.num_elements() == 0) {
      return errors::InvalidArgument("Got output shape ", shape.DebugString(),
                                     " which has 0 elements");
    }
    MR_RETURN_IF_ERROR(Place(shape, &hypothesis));
    MR_RETURN_IF_ERROR(Place(shape, &truth));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    std::fill_n(out->data<float>(), shape.num_elements(), 0.0f);  // where both are empty
    DispatchType(ElementTypes(), truth.values.dtype(),
                 [&]<typename T>() { Run<T>(hypothesis, truth, out->data<float>()); });
    return OkStatus();
  }

 private:
  template <typename T>
  void Run(const Sequences& hypothesis, const Sequences& truth, float* out) const {
    Reader<T> guessed(hypothesis), true_ones(truth);
    std::vector<const T*> from, to;
    std::vector<int64_t> row;
    while (!guessed.done() || !true_ones.done()) {
      const int64_t place = guessed.done()     ? true_ones.place()
                            : true_ones.done() ? guessed.place()
                                               : std::min(guessed.place(), true_ones.place());
      guessed.Read(place, &from);
      true_ones.Read(place, &to);
      const auto edits = static_cast<float>(Distance(from, to, &row));
      if (!normalize_) {
        out[place] = edits;
      } else if (to.empty()) {
        out[place] = std::numeric_limits<float>::infinity();
      } else {
        out[place] = edits / static_cast<float>(to.size());
      }
    }
  }

  const bool normalize_;
};

}  // namespace

void RegisterEditDistanceKernels(KernelRegistry& registry) {
  registry.Register(KernelDef("EditDistance").Types("T", DataTypesOf(ElementTypes())),
                    &MakeKernel<EditDistanceKernel>);
}

}  // namespace millrace
