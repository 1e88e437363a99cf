// SPDX-License-Identifier: Apache-2.0
#include "base/strings.h"
#include "model/layers/layer_util.h"
#include "model/layers/space.h"

namespace millrace::layers {
namespace {

// What convolutions end with.
class BiasedSpaceLayer : public SpaceLayer {
 protected:
  using SpaceLayer::SpaceLayer;

  // `y` with a bias for each of its channels, if there is one, and through the activation.
  template <typename Options>
  Output Finished(Pass& pass, Output y, int64_t channels, const Options& o, Where where) {
    const Scope& s = pass.scope();
    if (o.use_bias) {
      const Variable bias =
          Weight(pass, "bias", Shape({channels}),
                 {o.bias_initializer, o.bias_regularizer, o.bias_constraint}, where);
      if (!bias.handle.valid()) return Output();
      y = ops::BiasAdd(s, y, bias.read);
    }
    return o.activation(Expr(s, y), where);
  }
};

class ConvLayer : public BiasedSpaceLayer {
 public:
  ConvLayer(int axes, int64_t filters, Sizes kernel_size, const ConvOptions& options, Where where)
      : BiasedSpaceLayer(KindOf(axes), axes, options.name, where),
        filters_(filters),
        kernel_size_(std::move(kernel_size)),
        o_(options) {
    o_.kernel_initializer = Or(o_.kernel_initializer, initializers::GlorotUniform());
    o_.bias_initializer = Or(o_.bias_initializer, initializers::Zeros());
    set_activity_regularizer(o_.activity_regularizer);
  }

 protected:
  Output CallImage(Pass& pass, const Output& image, Where where) override {
    const bool causal = axes() == 1 && o_.padding == "causal";
    const auto size = Checked(pass, "kernel_size", kernel_size_, where);
    const auto strides = Checked(pass, "strides", o_.strides, where);
    const auto dilations = Checked(pass, "dilation_rate", o_.dilation_rate, where);
    const std::string padding = causal ? "VALID" : CheckedPadding(pass, o_.padding, where);
    if (!pass.scope().status().ok() || !NeedsDim(pass, image, -1, where)) return Output();
    // A causal one has steps before the first.
    if (!causal && !Fits(pass, "kernel_size", image, size, dilations, padding, where)) {
      return Output();
    }
    const int64_t channels = DimOf(image, -1);
    if (filters_ <= 0 || o_.groups <= 0 || filters_ % o_.groups != 0 || channels % o_.groups != 0) {
      return BadOption(pass,
                       StrCat("filters must be positive, and groups must divide them and the "
                              "channels of the input: filters ",
                              filters_, ", groups ", o_.groups, ", channels ", channels),
                       where);
    }
    const Scope& s = pass.scope();
    Output x = CastTo(s, image, pass.compute_type());
    if (causal) {
      const auto before = static_cast<int32_t>(dilations[0] * (size[0] - 1));
      x = ops::Pad(s, x, Tensor::FromValues<int32_t>({0, 0, 0, 0, before, 0, 0, 0}, Shape({4, 2})));
    }
    return Convolve(pass, x, {size, strides, dilations, padding}, where);
  }

 private:
  static const char* KindOf(int axes) {
    return axes == 1 ? "Conv1D" : axes == 2 ? "Conv2D" : "Conv3D";
  }

  struct Window {
    std::vector<int64_t> size, strides, dilations;
    std::string padding;
  };

  Output Convolve(Pass& pass, const Output& x, const Window& window, Where where) {
    const Scope& s = pass.scope();
    std::vector<int64_t> dims = window.size;
    dims.push_back(DimOf(x, -1) / o_.groups);
    dims.push_back(filters_);
    const Variable kernel =
        Weight(pass, "kernel", Shape(dims),
               {o_.kernel_initializer, o_.kernel_regularizer, o_.kernel_constraint}, where);
    if (!kernel.handle.valid()) return Output();
    const Output filter = axes() == 1 ? ops::ExpandDims(s, kernel.read, 0) : kernel.read;
    Output y = Grouped(s, x, filter, window);
    return Finished(pass, y, filters_, o_, where);
  }

  Output Grouped(const Scope& s, const Output& x, const Output& filter, const Window& w) const {
    const auto one = [&](const Output& image, const Output& kernel) -> Output {
      if (axes() == 3) {
        return ops::Conv3D(s, image, kernel, WindowOf(w.strides), w.padding,
                           {.dilations = WindowOf(w.dilations)});
      }
      return ops::Conv2D(s, image, kernel, WindowOf(w.strides), w.padding,
                         {.dilations = WindowOf(w.dilations)});
    };
    if (o_.groups == 1) return one(x, filter);
    const std::vector<Output> images = ops::Split(s, -1, x, o_.groups);
    const std::vector<Output> kernels = ops::Split(s, -1, filter, o_.groups);
    if (images.size() != kernels.size()) return Output();
    std::vector<Input> parts;
    for (std::size_t i = 0; i < images.size(); ++i) parts.emplace_back(one(images[i], kernels[i]));
    return ops::ConcatV2(s, parts, -1);
  }

  const int64_t filters_;
  const Sizes kernel_size_;
  ConvOptions o_;
};

class DepthwiseConvLayer : public BiasedSpaceLayer {
 public:
  DepthwiseConvLayer(Sizes kernel_size, const DepthwiseConvOptions& options, Where where)
      : BiasedSpaceLayer("DepthwiseConv2D", 2, options.name, where),
        kernel_size_(std::move(kernel_size)),
        o_(options) {
    o_.depthwise_initializer = Or(o_.depthwise_initializer, initializers::GlorotUniform());
    o_.bias_initializer = Or(o_.bias_initializer, initializers::Zeros());
    set_activity_regularizer(o_.activity_regularizer);
  }

 protected:
  Output CallImage(Pass& pass, const Output& image, Where where) override {
    const auto size = Checked(pass, "kernel_size", kernel_size_, where);
    const auto strides = Checked(pass, "strides", o_.strides, where);
    const auto dilations = Checked(pass, "dilation_rate", o_.dilation_rate, where);
    const std::string padding = CheckedPadding(pass, o_.padding, where);
    if (!pass.scope().status().ok() || !NeedsDim(pass, image, -1, where)) return Output();
    if (!Fits(pass, "kernel_size", image, size, dilations, padding, where)) return Output();
    const int64_t channels = DimOf(image, -1), multiplier = o_.depth_multiplier;
    if (multiplier <= 0) {
      return BadOption(pass, StrCat("depth_multiplier must be positive, not ", multiplier), where);
    }
    const Variable kernel = Weight(
        pass, "kernel", Shape({size[0], size[1], channels, multiplier}),
        {o_.depthwise_initializer, o_.depthwise_regularizer, o_.depthwise_constraint}, where);
    if (!kernel.handle.valid()) return Output();
    const Scope& s = pass.scope();
    Output y =
        ops::DepthwiseConv2dNative(s, CastTo(s, image, pass.compute_type()), kernel.read,
                                   WindowOf(strides), padding, {.dilations = WindowOf(dilations)});
    return Finished(pass, y, channels * multiplier, o_, where);
  }

 private:
  const Sizes kernel_size_;
  DepthwiseConvOptions o_;
};

class ConvTransposeLayer : public BiasedSpaceLayer {
 public:
  ConvTransposeLayer(int axes, int64_t filters, Sizes kernel_size,
                     const ConvTransposeOptions& options, Where where)
      : BiasedSpaceLayer(axes == 2 ? "Conv2DTranspose" : "Conv3DTranspose", axes, options.name,
                         where),
        filters_(filters),
        kernel_size_(std::move(kernel_size)),
        o_(options) {
    o_.kernel_initializer = Or(o_.kernel_initializer, initializers::GlorotUniform());
    o_.bias_initializer = Or(o_.bias_initializer, initializers::Zeros());
    set_activity_regularizer(o_.activity_regularizer);
  }

 protected:
  Output CallImage(Pass& pass, const Output& image, Where where) override {
    const auto size = Checked(pass, "kernel_size", kernel_size_, where);
    const auto strides = Checked(pass, "strides", o_.strides, where);
    const std::string padding = CheckedPadding(pass, o_.padding, where);
    if (!pass.scope().status().ok() || !NeedsDim(pass, image, -1, where)) return Output();
    if (filters_ <= 0) {
      return BadOption(pass, StrCat("filters must be positive, not ", filters_), where);
    }
    std::vector<int64_t> dims = size;
    dims.push_back(filters_);
    dims.push_back(DimOf(image, -1));
    const Variable kernel =
        Weight(pass, "kernel", Shape(dims),
               {o_.kernel_initializer, o_.kernel_regularizer, o_.kernel_constraint}, where);
    if (!kernel.handle.valid()) return Output();
    const Scope& s = pass.scope();
    const Output x = CastTo(s, image, pass.compute_type());
    const auto [sizes, known] = OutputSizes(s, x, size, strides, padding == "VALID");
    Output y =
        axes() == 2
            ? ops::Conv2DBackpropInput(s, sizes, kernel.read, x, WindowOf(strides), padding)
            : ops::Conv3DBackpropInputV2(s, sizes, kernel.read, x, WindowOf(strides), padding);
    y = ops::EnsureShape(s, y, known);
    return Finished(pass, y, filters_, o_, where);
  }

 private:
  // The output's sizes at run time, and as far as they are known before.
  std::pair<Output, PartialShape> OutputSizes(const Scope& s, const Output& x,
                                              const std::vector<int64_t>& size,
                                              const std::vector<int64_t>& strides,
                                              bool valid) const {
    std::vector<Input> sizes = {RunDim(s, x, 0)};
    std::vector<int64_t> known = {x.shape().dim(0)};
    for (int i = 0; i < axes(); ++i) {
      // Without padding what a window covers beyond its stride is more.
      const int64_t more = valid ? std::max<int64_t>(size[i] - strides[i], 0) : 0;
      const int64_t dim = x.shape().dim(i + 1);
      known.push_back(dim < 0 ? -1 : dim * strides[i] + more);
      if (dim >= 0) {
        sizes.emplace_back(static_cast<int32_t>(known.back()));
      } else {
        const Expr at_run_time(s, RunDim(s, x, i + 1));
        sizes.emplace_back(
            (at_run_time * static_cast<int32_t>(strides[i]) + static_cast<int32_t>(more)).output());
      }
    }
    sizes.emplace_back(static_cast<int32_t>(filters_));
    known.push_back(filters_);
    return {ops::Pack(s, sizes), PartialShape(known)};
  }

  const int64_t filters_;
  const Sizes kernel_size_;
  ConvTransposeOptions o_;
};

}  // namespace

LayerPtr Conv1D(int64_t filters, const Sizes& kernel_size, const ConvOptions& options,
                Where where) {
  return std::make_unique<ConvLayer>(1, filters, kernel_size, options, where);
}
LayerPtr Conv2D(int64_t filters, const Sizes& kernel_size, const ConvOptions& options,
                Where where) {
  return std::make_unique<ConvLayer>(2, filters, kernel_size, options, where);
}
LayerPtr Conv3D(int64_t filters, const Sizes& kernel_size, const ConvOptions& options,
                Where where) {
  return std::make_unique<ConvLayer>(3, filters, kernel_size, options, where);
}
LayerPtr DepthwiseConv2D(const Sizes& kernel_size, const DepthwiseConvOptions& options,
                         Where where) {
  return std::make_unique<DepthwiseConvLayer>(kernel_size, options, where);
}
LayerPtr Conv2DTranspose(int64_t filters, const Sizes& kernel_size,
                         const ConvTransposeOptions& options, Where where) {
  return std::make_unique<ConvTransposeLayer>(2, filters, kernel_size, options, where);
}
LayerPtr Conv3DTranspose(int64_t filters, const Sizes& kernel_size,
                         const ConvTransposeOptions& options, Where where) {
  return std::make_unique<ConvTransposeLayer>(3, filters, kernel_size, options, where);
}

}  // namespace millrace::layers
