// SPDX-License-Identifier: Apache-2.0
// Layers that make one output of several inputs.
#include "base/errors.h"
#include "base/strings.h"
#include "millrace/core_layers.h"
#include "model/layers/layer_util.h"

namespace millrace::layers {
namespace {

class MergeLayer : public Layer {
 public:
  MergeLayer(const char* kind, std::size_t least, std::size_t most, std::string name, Where where)
      : Layer(std::move(name), where), kind_(kind), least_(least), most_(most) {}
  std::string kind() const override { return kind_; }

 protected:
  virtual Expr Merge(Pass& pass, std::span<const Expr> inputs, Where where) = 0;

  Output Call(Pass& pass, std::span<const Output> inputs, Where where) override {
    if (inputs.size() < least_ || inputs.size() > most_) {
      pass.scope().RecordError(errors::InvalidArgument("layer ", Description(), " takes ", least_,
                                                       least_ == most_ ? "" : " or more",
                                                       " inputs, not ", inputs.size()),
                               where);
      return Output();
    }
    std::vector<Expr> xs;
    for (const Output& x : inputs) {
      if (!x.shape().has_rank()) {
        RecordBadInput(pass, x, "inputs of known rank", where);
        return Output();
      }
      xs.emplace_back(pass.scope(), x);
    }
    return Merge(pass, xs, where);
  }

 private:
  const char* const kind_;
  const std::size_t least_, most_;
};

using Fold = std::function<Expr(const Expr& a, const Expr& b)>;

// Element by element, over all inputs.
class ElementwiseMerge : public MergeLayer {
 public:
  ElementwiseMerge(const char* kind, std::size_t most, bool mean, Fold fold, std::string name,
                   Where where)
      : MergeLayer(kind, 2, most, std::move(name), where), mean_(mean), fold_(std::move(fold)) {}

 protected:
  Expr Merge(Pass& pass, std::span<const Expr> inputs, Where where) override {
    const Scope& s = pass.scope();
    int rank = 0;
    for (const Expr& x : inputs) rank = std::max(rank, x.shape().rank());
    std::vector<Expr> xs;
    for (const Expr& x : inputs) {
      // Samples have axes in common from the last; the batch stays in front.
      Expr y = x;
      while (y.shape().rank() < rank) y = y.ExpandDims(1);
      if (!xs.empty() && !Fits(xs.front().shape(), y.shape())) {
        RecordBadInput(pass, x,
                       StrCat("inputs that can be broadcast to the shape ",
                              inputs[0].shape().DebugString(), " of the first"),
                       where);
        return Expr(s, Output());
      }
      xs.push_back(y);
    }
    Expr result = xs[0];
    for (std::size_t i = 1; i < xs.size(); ++i) result = fold_(result, xs[i]);
    MergeMasks(pass, inputs);
    return mean_ ? result / static_cast<float>(xs.size()) : result;
  }

 private:
  static bool Fits(const PartialShape& a, const PartialShape& b) {
    for (int i = 0; i < a.rank(); ++i) {
      if (a.dim(i) > 1 && b.dim(i) > 1 && a.dim(i) != b.dim(i)) return false;
    }
    return true;
  }

  // A step counts if it does in any input, and all do if one has no mask.
  static void MergeMasks(Pass& pass, std::span<const Expr> inputs) {
    Output merged;
    for (const Expr& x : inputs) {
      const Output mask = pass.MaskOf(x);
      if (!mask.valid()) {
        pass.set_mask(Output());
        return;
      }
      merged = merged.valid() ? ops::LogicalOr(pass.scope(), merged, mask) : mask;
    }
    pass.set_mask(merged);
  }

  const bool mean_;
  const Fold fold_;
};

class ConcatenateLayer : public MergeLayer {
 public:
  ConcatenateLayer(int axis, std::string name, Where where)
      : MergeLayer("Concatenate", 1, 1 << 20, std::move(name), where), axis_(axis) {}

 protected:
  Expr Merge(Pass& pass, std::span<const Expr> inputs, Where where) override {
    const Scope& s = pass.scope();
    const int axis = AxisOf(inputs[0], axis_);
    std::vector<Input> values;
    for (const Expr& x : inputs) {
      if (axis < 0 || !Fits(inputs[0].shape(), x.shape(), axis)) {
        RecordBadInput(pass, x,
                       StrCat("inputs of the shape ", inputs[0].shape().DebugString(),
                              " of the first but for the size of axis ", axis_),
                       where);
        return Expr(s, Output());
      }
      values.emplace_back(x.output());
    }
    MergeMasks(pass, inputs, axis);
    return Expr(s, ops::ConcatV2(s, values, axis));
  }

 private:
  static bool Fits(const PartialShape& a, const PartialShape& b, int axis) {
    if (a.rank() != b.rank()) return false;
    for (int i = 0; i < a.rank(); ++i) {
      if (i != axis && a.dim(i) >= 0 && b.dim(i) >= 0 && a.dim(i) != b.dim(i)) return false;
    }
    return true;
  }

  // A step counts where any part of it does.
  static void MergeMasks(Pass& pass, std::span<const Expr> inputs, int axis) {
    const Scope& s = pass.scope();
    bool any = false;
    for (const Expr& x : inputs) any = any || pass.MaskOf(x).valid();
    if (!any) {
      pass.set_mask(Output());
      return;
    }
    std::vector<Input> masks;
    for (const Expr& x : inputs) {
      const Output mask = pass.MaskOf(x);
      Expr whole = Expr(s, ops::ZerosLike(s, x)).Equal(0.0f);
      if (mask.valid()) {
        Expr steps(s, mask);
        while (steps.shape().has_rank() && steps.shape().rank() < x.shape().rank()) {
          steps = steps.ExpandDims(-1);
        }
        whole = whole.And(steps);
      }
      masks.emplace_back(whole.output());
    }
    const Output together = ops::ConcatV2(s, masks, axis);
    pass.set_mask(ops::Any(s, together, -1));
  }

  const int axis_;
};

class DotLayer : public MergeLayer {
 public:
  DotLayer(std::array<int, 2> axes, const DotOptions& o, Where where)
      : MergeLayer("Dot", 2, 2, o.name, where), axes_(axes), normalize_(o.normalize) {}

 protected:
  bool computes_in(DataType) const override { return !normalize_; }
  Expr Merge(Pass& pass, std::span<const Expr> inputs, Where where) override {
    const Scope& s = pass.scope();
    pass.set_mask(Output());
    std::vector<Expr> sides;
    for (int i = 0; i < 2; ++i) {
      const Expr& x = inputs[i];
      const int axis = AxisOf(x, axes_[i]), rank = x.shape().rank();
      if (rank < 2 || rank > 3 || axis < 1) {
        RecordBadInput(pass, x, StrCat("inputs of rank 2 or 3 with an axis ", axes_[i]), where);
        return Expr(s, Output());
      }
      const Expr scaled = normalize_ ? x / x.Square().Sum({axis}, true).Max(1e-12f).Sqrt() : x;
      sides.push_back(rank == 2 ? scaled.ExpandDims(i == 0 ? 1 : 2) : scaled);
    }
    const auto sum_axis = [&](int i) {
      return inputs[i].shape().rank() == 2 ? (i == 0 ? 2 : 1) : AxisOf(inputs[i], axes_[i]);
    };
    const int64_t n = DimOf(sides[0], sum_axis(0)), m = DimOf(sides[1], sum_axis(1));
    if (n >= 0 && m >= 0 && n != m) {
      RecordBadInput(pass, inputs[1],
                     StrCat("axes of one size, as ", inputs[0].shape().DebugString(), " has"),
                     where);
      return Expr(s, Output());
    }
    Expr y(s, ops::BatchMatMulV2(s, sides[0], sides[1],
                                 {.adj_x = sum_axis(0) == 1, .adj_y = sum_axis(1) == 2}));
    const bool first = inputs[0].shape().rank() == 2, second = inputs[1].shape().rank() == 2;
    if (second) y = y.Squeeze(2);
    if (first) y = y.Squeeze(1);
    return first && second ? y.ExpandDims(1) : y;
  }

 private:
  const std::array<int, 2> axes_;
  const bool normalize_;
};

LayerPtr Merge(const char* kind, Fold fold, std::string name, Where where, bool mean = false,
               std::size_t most = 1 << 20) {
  return std::make_unique<ElementwiseMerge>(kind, most, mean, std::move(fold), std::move(name),
                                            where);
}

}  // namespace

LayerPtr Add(std::string name, Where where) {
  return Merge("Add", [](const Expr& a, const Expr& b) { return a + b; }, std::move(name), where);
}
LayerPtr Subtract(std::string name, Where where) {
  return Merge(
      "Subtract", [](const Expr& a, const Expr& b) { return a - b; }, std::move(name), where, false,
      2);
}
LayerPtr Multiply(std::string name, Where where) {
  return Merge(
      "Multiply", [](const Expr& a, const Expr& b) { return a * b; }, std::move(name), where);
}
LayerPtr Average(std::string name, Where where) {
  return Merge(
      "Average", [](const Expr& a, const Expr& b) { return a + b; }, std::move(name), where, true);
}
LayerPtr Maximum(std::string name, Where where) {
  return Merge(
      "Maximum", [](const Expr& a, const Expr& b) { return a.Max(b); }, std::move(name), where);
}
LayerPtr Minimum(std::string name, Where where) {
  return Merge(
      "Minimum", [](const Expr& a, const Expr& b) { return a.Min(b); }, std::move(name), where);
}
LayerPtr Concatenate(int axis, std::string name, Where where) {
  return std::make_unique<ConcatenateLayer>(axis, std::move(name), where);
}
LayerPtr Dot(std::array<int, 2> axes, const DotOptions& options, Where where) {
  return std::make_unique<DotLayer>(axes, options, where);
}

}  // namespace millrace::layers
