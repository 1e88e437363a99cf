// SPDX-License-Identifier: Apache-2.0
// Layers that change shapes and no value.
#include <algorithm>
#include <numeric>

#include "base/strings.h"
#include "model/layers/layer_util.h"
#include "model/layers/space.h"
#include "model/layers/unary_layer.h"

namespace millrace::layers {
namespace {

// The product of the sizes from `first` on, -1 if one is unknown.
int64_t Product(const std::vector<int64_t>& dims, std::size_t first) {
  int64_t product = 1;
  for (std::size_t i = first; i < dims.size(); ++i) {
    if (dims[i] < 0) return -1;
    product *= dims[i];
  }
  return product;
}

Expr Flattened(const Expr& x) {
  const Scope& s = x.scope();
  const std::vector<int64_t> dims = DimsOf(x);
  const int64_t features = Product(dims, 1);
  if (features > 0) return Expr(s, ReshapeTo(s, x, std::vector<int64_t>{-1, features}));
  const Expr batch(s, RunDim(s, x, 0));
  return x.Reshape(ops::Pack(s, {batch.output(), -1}));
}

class ReshapeLayer : public UnaryLayer {
 public:
  ReshapeLayer(std::vector<int64_t> target, std::string name, Where where)
      : UnaryLayer(std::move(name), {.least = 1}, where), target_(std::move(target)) {}
  std::string kind() const override { return "Reshape"; }

 protected:
  bool supports_masking() const override { return false; }

  Output CallOne(Pass& pass, const Output& x, Where where) override {
    const Scope& s = pass.scope();
    const int64_t size = Product(DimsOf(x), 1);
    std::vector<int64_t> dims = target_;
    const auto unknown = std::find(dims.begin(), dims.end(), -1);
    if (unknown != dims.end()) *unknown = 1;
    const int64_t wanted = Product(dims, 0);
    const bool fits =
        wanted > 0 && (size < 0 || (unknown == dims.end() ? size == wanted : size % wanted == 0));
    if (!fits) {
      RecordBadInput(
          pass, x, StrCat("samples that can be reshaped to [", StrJoin(target_, ","), "]"), where);
      return Output();
    }
    if (unknown != dims.end()) *unknown = size < 0 ? -1 : size / wanted;
    dims.insert(dims.begin(), x.shape().dim(0));
    if (dims[0] >= 0 || Product(dims, 1) >= 0) return ReshapeTo(s, x, dims);
    std::vector<Input> sizes = {RunDim(s, x, 0)};
    for (std::size_t i = 1; i < dims.size(); ++i) {
      sizes.emplace_back(static_cast<int32_t>(dims[i]));
    }
    return ops::Reshape(s, x, ops::Pack(s, sizes));
  }

 private:
  const std::vector<int64_t> target_;
};

class PermuteLayer : public UnaryLayer {
 public:
  PermuteLayer(std::vector<int> dims, std::string name, Where where)
      : UnaryLayer(
            std::move(name),
            {.least = static_cast<int>(dims.size()) + 1, .most = static_cast<int>(dims.size()) + 1},
            where),
        dims_(std::move(dims)) {}
  std::string kind() const override { return "Permute"; }

 protected:
  bool supports_masking() const override { return false; }

  Output CallOne(Pass& pass, const Output& x, Where where) override {
    std::vector<int> sorted = dims_, counted(dims_.size());
    std::sort(sorted.begin(), sorted.end());
    std::iota(counted.begin(), counted.end(), 1);
    if (sorted != counted) {
      return BadOption(pass,
                       StrCat("dims must be the numbers from 1 to ", dims_.size(),
                              " in another order, and are (", StrJoin(dims_, ", "), ")"),
                       where);
    }
    std::vector<int64_t> perm = {0};
    perm.insert(perm.end(), dims_.begin(), dims_.end());
    return ops::Transpose(pass.scope(), x, Ints(perm));
  }

 private:
  const std::vector<int> dims_;
};

// Zeros around, or what is around cut off.
class BorderLayer : public SpaceLayer {
 public:
  BorderLayer(const char* kind, int axes, bool cut, Sizes sizes, std::string name, Where where)
      : SpaceLayer(kind, axes, std::move(name), where), cut_(cut), sizes_(std::move(sizes)) {}

 protected:
  Output CallImage(Pass& pass, const Output& x, Where where) override {
    const std::vector<int64_t>& v = sizes_.values;
    // Before and after each axis of the image: top, bottom, left, right.
    std::vector<int64_t> b;
    if (v.size() == 1) {
      b = axes() == 1 ? std::vector<int64_t>{0, 0, v[0], v[0]}
                      : std::vector<int64_t>{v[0], v[0], v[0], v[0]};
    } else if (v.size() == 2) {
      b = axes() == 1 ? std::vector<int64_t>{0, 0, v[0], v[1]}
                      : std::vector<int64_t>{v[0], v[0], v[1], v[1]};
    } else if (v.size() == 4 && axes() == 2) {
      b = v;
    }
    if (b.empty() || *std::min_element(b.begin(), b.end()) < 0 ||
        *std::max_element(b.begin(), b.end()) > kMostSize) {
      return BadOption(pass,
                       StrCat("sizes must be one, two or (of images) four numbers that are not "
                              "negative, and are (",
                              StrJoin(v, ", "), ")"),
                       where);
    }
    for (int axis = 1; cut_ && axis <= 2; ++axis) {
      const int64_t size = DimOf(x, axis), cut = b[2 * axis - 2] + b[2 * axis - 1];
      if (size < 0 || cut < size) continue;
      return BadOption(pass,
                       StrCat("cropping of (", StrJoin(v, ", "), ") leaves nothing of an axis of ",
                              size, ": crop less, or give larger inputs"),
                       where);
    }
    const Scope& s = pass.scope();
    if (!cut_) {
      const std::vector<int32_t> pads = {0,
                                         0,
                                         static_cast<int32_t>(b[0]),
                                         static_cast<int32_t>(b[1]),
                                         static_cast<int32_t>(b[2]),
                                         static_cast<int32_t>(b[3]),
                                         0,
                                         0};
      return ops::Pad(s, x, Tensor::FromValues<int32_t>(pads, Shape({4, 2})));
    }
    // An end of zero is that of the axis.
    const int64_t masks = 0b1001 | (b[1] == 0 ? 2 : 0) | (b[3] == 0 ? 4 : 0);
    return ops::StridedSlice(s, x, Ints(std::vector<int64_t>{0, b[0], b[2], 0}),
                             Ints(std::vector<int64_t>{0, -b[1], -b[3], 0}),
                             Ints(std::vector<int64_t>{1, 1, 1, 1}),
                             {.begin_mask = 0b1001, .end_mask = masks});
  }

 private:
  const bool cut_;
  const Sizes sizes_;
};

class UpSamplingLayer : public SpaceLayer {
 public:
  UpSamplingLayer(const char* kind, int axes, Sizes size, std::string name, Where where)
      : SpaceLayer(kind, axes, std::move(name), where), size_(std::move(size)) {}

 protected:
  Output CallImage(Pass& pass, const Output& x, Where where) override {
    std::vector<int64_t> by = Checked(pass, "size", size_, where);
    if (by.empty()) return Output();
    if (by.size() == 1) by.insert(by.begin(), 1);
    const Scope& s = pass.scope();
    // Copies along axes of one's own, which then become part of height and width.
    Output y = x;
    for (int axis = 1; axis <= 2; ++axis) {
      if (by[axis - 1] == 1) continue;
      std::vector<int64_t> dims = DimsOf(y), copies(dims.size() + 1, 1);
      copies[axis + 1] = by[axis - 1];
      const Output tiled = ops::Tile(s, ops::ExpandDims(s, y, axis + 1), Ints(copies));
      const Expr size(s, RunDim(s, y, axis));
      std::vector<Input> sizes;
      for (int i = 0; i < 4; ++i) {
        if (i == axis && dims[i] < 0) {
          sizes.emplace_back((size * static_cast<int32_t>(by[axis - 1])).output());
        } else if (dims[i] >= 0) {
          sizes.emplace_back(static_cast<int32_t>(i == axis ? dims[i] * by[axis - 1] : dims[i]));
        } else {
          sizes.emplace_back(RunDim(s, y, i));
        }
      }
      if (dims[axis] >= 0) dims[axis] *= by[axis - 1];
      y = std::count(dims.begin(), dims.end(), -1) <= 1
              ? ReshapeTo(s, tiled, dims)
              : ops::Reshape(s, tiled, ops::Pack(s, sizes));
    }
    return y == x ? ops::Identity(s, x) : y;
  }

 private:
  const Sizes size_;
};

}  // namespace

LayerPtr Flatten(std::string name, Where where) {
  return std::make_unique<FunctionLayer>(
      "Flatten", std::move(name), UnaryLayer::Ranks{.least = 1},
      [](Pass& pass, const Expr& x) {
        pass.set_mask(Output());
        return Flattened(x);
      },
      where);
}

LayerPtr Reshape(std::vector<int64_t> target_shape, std::string name, Where where) {
  return std::make_unique<ReshapeLayer>(std::move(target_shape), std::move(name), where);
}

LayerPtr Permute(std::vector<int> dims, std::string name, Where where) {
  return std::make_unique<PermuteLayer>(std::move(dims), std::move(name), where);
}

LayerPtr RepeatVector(int64_t n, std::string name, Where where) {
  return std::make_unique<FunctionLayer>(
      "RepeatVector", std::move(name), UnaryLayer::Ranks{.least = 2, .most = 2},
      [n](Pass& pass, const Expr& x) {
        pass.set_mask(Output());
        const Scope& s = x.scope();
        return Expr(s, ops::Tile(s, x.ExpandDims(1), Ints(std::vector<int64_t>{1, n, 1})));
      },
      where,
      [n](OptionChecks& options) { options.Within("n", static_cast<double>(n), 1, kMostSize); });
}

LayerPtr ZeroPadding1D(const Sizes& padding, std::string name, Where where) {
  return std::make_unique<BorderLayer>("ZeroPadding1D", 1, false, padding, std::move(name), where);
}
LayerPtr ZeroPadding2D(const Sizes& padding, std::string name, Where where) {
  return std::make_unique<BorderLayer>("ZeroPadding2D", 2, false, padding, std::move(name), where);
}
LayerPtr Cropping1D(const Sizes& cropping, std::string name, Where where) {
  return std::make_unique<BorderLayer>("Cropping1D", 1, true, cropping, std::move(name), where);
}
LayerPtr Cropping2D(const Sizes& cropping, std::string name, Where where) {
  return std::make_unique<BorderLayer>("Cropping2D", 2, true, cropping, std::move(name), where);
}
LayerPtr UpSampling1D(int64_t size, std::string name, Where where) {
  return std::make_unique<UpSamplingLayer>("UpSampling1D", 1, Sizes(size), std::move(name), where);
}
LayerPtr UpSampling2D(const Sizes& size, std::string name, Where where) {
  return std::make_unique<UpSamplingLayer>("UpSampling2D", 2, size, std::move(name), where);
}

}  // namespace millrace::layers
