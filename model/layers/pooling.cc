// SPDX-License-Identifier: Apache-2.0
#include "model/layers/layer_util.h"
#include "model/layers/space.h"

namespace millrace::layers {
namespace {

class PoolingLayer : public SpaceLayer {
 public:
  PoolingLayer(const char* kind, int axes, bool max, Sizes pool_size, const PoolingOptions& o,
               Where where)
      : SpaceLayer(kind, axes, o.name, where), max_(max), size_(std::move(pool_size)), o_(o) {}

 protected:
  // As TensorFlow, we have no kernels that pool volumes of halves.
  bool computes_in(DataType type) const override { return axes() < 3 || type != kHalf; }
  Output CallImage(Pass& pass, const Output& image, Where where) override {
    const auto size = Checked(pass, "pool_size", size_, where);
    const auto strides = Checked(pass, "strides", o_.strides.value_or(size_), where);
    const std::string padding = CheckedPadding(pass, o_.padding, where);
    const Scope& s = pass.scope();
    if (!s.status().ok()) return Output();
    const std::vector<int64_t> dense(size.size(), 1);
    if (!Fits(pass, "pool_size", image, size, dense, padding, where)) return Output();
    const Output x = CastTo(s, image, pass.compute_type());
    if (axes() == 3) {
      return max_ ? ops::MaxPool3D(s, x, WindowOf(size), WindowOf(strides), padding)
                  : ops::AvgPool3D(s, x, WindowOf(size), WindowOf(strides), padding);
    }
    return max_ ? ops::MaxPool(s, x, WindowOf(size), WindowOf(strides), padding)
                : ops::AvgPool(s, x, WindowOf(size), WindowOf(strides), padding);
  }

 private:
  const bool max_;
  const Sizes size_;
  const PoolingOptions o_;
};

class GlobalPoolingLayer : public UnaryLayer {
 public:
  GlobalPoolingLayer(const char* kind, int axes, bool max, const GlobalPoolingOptions& o,
                     Where where)
      : UnaryLayer(o.name, {.least = axes + 2, .most = axes + 2}, where),
        kind_(kind),
        axes_(axes),
        max_(max),
        keep_dims_(o.keep_dims) {}
  std::string kind() const override { return kind_; }

 protected:
  // Sums over many places are those of float32.
  bool computes_in(DataType) const override { return max_; }
  Output CallOne(Pass& pass, const Output& input, Where) override {
    const Scope& s = pass.scope();
    const Output mask = pass.mask();
    pass.set_mask(Output());
    const Expr x(s, CastTo(s, input, pass.compute_type()));
    std::vector<int32_t> axes;
    for (int axis = 1; axis <= axes_; ++axis) axes.push_back(axis);
    if (max_) return x.ReduceMax(axes, keep_dims_);
    if (axes_ != 1 || !mask.valid()) return x.Mean(axes, keep_dims_);
    const Expr counts = Expr(s, mask).Cast(x.dtype()).ExpandDims(-1);
    return (x * counts).Sum(axes, keep_dims_) / counts.Sum(axes, keep_dims_);
  }

 private:
  const char* const kind_;
  const int axes_;
  const bool max_, keep_dims_;
};

LayerPtr Pool(const char* kind, int axes, bool max, const Sizes& size, const PoolingOptions& o,
              Where where) {
  return std::make_unique<PoolingLayer>(kind, axes, max, size, o, where);
}
LayerPtr GlobalPool(const char* kind, int axes, bool max, const GlobalPoolingOptions& o,
                    Where where) {
  return std::make_unique<GlobalPoolingLayer>(kind, axes, max, o, where);
}

}  // namespace

LayerPtr MaxPooling1D(const Sizes& size, const PoolingOptions& o, Where where) {
  return Pool("MaxPooling1D", 1, true, size, o, where);
}
LayerPtr MaxPooling2D(const Sizes& size, const PoolingOptions& o, Where where) {
  return Pool("MaxPooling2D", 2, true, size, o, where);
}
LayerPtr MaxPooling3D(const Sizes& size, const PoolingOptions& o, Where where) {
  return Pool("MaxPooling3D", 3, true, size, o, where);
}
LayerPtr AveragePooling1D(const Sizes& size, const PoolingOptions& o, Where where) {
  return Pool("AveragePooling1D", 1, false, size, o, where);
}
LayerPtr AveragePooling2D(const Sizes& size, const PoolingOptions& o, Where where) {
  return Pool("AveragePooling2D", 2, false, size, o, where);
}
LayerPtr AveragePooling3D(const Sizes& size, const PoolingOptions& o, Where where) {
  return Pool("AveragePooling3D", 3, false, size, o, where);
}
LayerPtr GlobalMaxPooling1D(const GlobalPoolingOptions& o, Where where) {
  return GlobalPool("GlobalMaxPooling1D", 1, true, o, where);
}
LayerPtr GlobalMaxPooling2D(const GlobalPoolingOptions& o, Where where) {
  return GlobalPool("GlobalMaxPooling2D", 2, true, o, where);
}
LayerPtr GlobalMaxPooling3D(const GlobalPoolingOptions& o, Where where) {
  return GlobalPool("GlobalMaxPooling3D", 3, true, o, where);
}
LayerPtr GlobalAveragePooling1D(const GlobalPoolingOptions& o, Where where) {
  return GlobalPool("GlobalAveragePooling1D", 1, false, o, where);
}
LayerPtr GlobalAveragePooling2D(const GlobalPoolingOptions& o, Where where) {
  return GlobalPool("GlobalAveragePooling2D", 2, false, o, where);
}
LayerPtr GlobalAveragePooling3D(const GlobalPoolingOptions& o, Where where) {
  return GlobalPool("GlobalAveragePooling3D", 3, false, o, where);
}

}  // namespace millrace::layers
