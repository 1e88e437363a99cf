// SPDX-License-Identifier: Apache-2.0
// Derivatives of what slides over images: convolutions whose gradient is taken once more, depthwise
// and transposed ones, pools, and resized images.
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "graph/dataflow_graph.h"
#include "graph/gradients/grad_families.h"
#include "graph/gradients/grad_util.h"

namespace millrace {
namespace {

using Ints = std::vector<int64_t>;

// The attributes that a convolution and its derivatives have in common.
struct Window {
  Ints strides, explicit_paddings, dilations;
  std::string padding, format;

  template <typename Attrs>
  Attrs As() const {
    return {.explicit_paddings = explicit_paddings, .data_format = format, .dilations = dilations};
  }
};

StatusOr<Window> WindowOf(GradContext& c, bool strides = true) {
  const AttrMap& attrs = c.op().node()->attrs();
  Window w;
  if (strides) {
    MR_ASSIGN_OR_RETURN(w.strides, attrs.Get<Ints>("strides"));
  }
  MR_ASSIGN_OR_RETURN(w.padding, attrs.Get<std::string>("padding"));
  w.explicit_paddings = attrs.GetOr<Ints>("explicit_paddings", {});
  w.format = attrs.GetOr<std::string>("data_format", w.strides.size() == 5 ? "NDHWC" : "NHWC");
  w.dilations = attrs.GetOr<Ints>("dilations", Ints(w.strides.size(), 1));
  return w;
}

// --- Convolutions: each of the three is linear in two things, which the other two are made of ----
struct Conv {
  static Output Forward(const Scope& s, const Output& x, const Output& filter, const Window& w) {
    return ops::Conv2D(s, x, filter, w.strides, w.padding, w.As<ops::Conv2DAttrs>());
  }
  static Output ByInput(const Scope& s, const Output& shape, const Output& filter, const Output& dy,
                        const Window& w) {
    return ops::Conv2DBackpropInput(s, shape, filter, dy, w.strides, w.padding,
                                    w.As<ops::Conv2DBackpropInputAttrs>());
  }
  static Output ByFilter(const Scope& s, const Output& x, const Output& shape, const Output& dy,
                         const Window& w) {
    return ops::Conv2DBackpropFilter(s, x, shape, dy, w.strides, w.padding,
                                     w.As<ops::Conv2DBackpropFilterAttrs>());
  }
};

// Over volumes.
struct Conv3D {
  static Output Forward(const Scope& s, const Output& x, const Output& filter, const Window& w) {
    return ops::Conv3D(s, x, filter, w.strides, w.padding,
                       {.data_format = w.format, .dilations = w.dilations});
  }
  static Output ByInput(const Scope& s, const Output& shape, const Output& filter, const Output& dy,
                        const Window& w) {
    return ops::Conv3DBackpropInputV2(s, shape, filter, dy, w.strides, w.padding,
                                      {.data_format = w.format, .dilations = w.dilations});
  }
  static Output ByFilter(const Scope& s, const Output& x, const Output& shape, const Output& dy,
                         const Window& w) {
    return ops::Conv3DBackpropFilterV2(s, x, shape, dy, w.strides, w.padding,
                                       {.data_format = w.format, .dilations = w.dilations});
  }
};

struct DepthwiseConv {
  static Output Forward(const Scope& s, const Output& x, const Output& filter, const Window& w) {
    return ops::DepthwiseConv2dNative(s, x, filter, w.strides, w.padding,
                                      w.As<ops::DepthwiseConv2dNativeAttrs>());
  }
  static Output ByInput(const Scope& s, const Output& shape, const Output& filter, const Output& dy,
                        const Window& w) {
    return ops::DepthwiseConv2dNativeBackpropInput(
        s, shape, filter, dy, w.strides, w.padding,
        w.As<ops::DepthwiseConv2dNativeBackpropInputAttrs>());
  }
  static Output ByFilter(const Scope& s, const Output& x, const Output& shape, const Output& dy,
                         const Window& w) {
    return ops::DepthwiseConv2dNativeBackpropFilter(
        s, x, shape, dy, w.strides, w.padding,
        w.As<ops::DepthwiseConv2dNativeBackpropFilterAttrs>());
  }
};

template <typename C>
Status ForwardGrad(GradContext& c) {
  const Scope& s = c.scope();
  MR_ASSIGN_OR_RETURN(const Window w, WindowOf(c));
  if (c.needs_dx(0)) c.set_dx(0, C::ByInput(s, ops::Shape(s, c.x(0)), c.x(1), c.dy(), w));
  if (c.needs_dx(1)) c.set_dx(1, C::ByFilter(s, c.x(0), ops::Shape(s, c.x(1)), c.dy(), w));
  return OkStatus();
}
// Of (sizes, filter, dy): a transposed convolution.
template <typename C>
Status ByInputGrad(GradContext& c) {
  const Scope& s = c.scope();
  MR_ASSIGN_OR_RETURN(const Window w, WindowOf(c));
  if (c.needs_dx(1)) c.set_dx(1, C::ByFilter(s, c.dy(), ops::Shape(s, c.x(1)), c.x(2), w));
  if (c.needs_dx(2)) c.set_dx(2, C::Forward(s, c.dy(), c.x(1), w));
  return OkStatus();
}
// Of (input, sizes, dy).
template <typename C>
Status ByFilterGrad(GradContext& c) {
  const Scope& s = c.scope();
  MR_ASSIGN_OR_RETURN(const Window w, WindowOf(c));
  if (c.needs_dx(0)) c.set_dx(0, C::ByInput(s, ops::Shape(s, c.x(0)), c.dy(), c.x(2), w));
  if (c.needs_dx(2)) c.set_dx(2, C::Forward(s, c.x(0), c.dy(), w));
  return OkStatus();
}

// --- Pools --------------------------------------------------------------------------------------
Status AvgPoolGradGrad(GradContext& c) {
  MR_ASSIGN_OR_RETURN(const Window w, WindowOf(c));
  MR_ASSIGN_OR_RETURN(const Ints ksize, c.op().node()->attrs().Get<Ints>("ksize"));
  c.set_dx(1,
           ops::AvgPool(c.scope(), c.dy(), ksize, w.strides, w.padding, {.data_format = w.format}));
  return OkStatus();
}

// What a pool's gradient takes beside the tensors, and that of MaxPoolGrad.
StatusOr<Ints> KsizeOf(GradContext& c) { return c.op().node()->attrs().Get<Ints>("ksize"); }

// Of (orig_input, orig_output, ...): the places that win do not change.
void SetZeroForBoth(GradContext& c) {
  for (const int i : {0, 1}) {
    if (c.needs_dx(i)) c.set_dx(i, ops::ZerosLike(c.scope(), c.x(i)));
  }
}

Status MaxPoolGradGradGrad(GradContext& c) {
  MR_ASSIGN_OR_RETURN(const Window w, WindowOf(c));
  MR_ASSIGN_OR_RETURN(const Ints ksize, KsizeOf(c));
  SetZeroForBoth(c);
  if (!c.needs_dx(2)) return OkStatus();
  c.set_dx(2, ops::MaxPoolGrad(c.scope(), c.x(0), c.x(1), c.dy(), ksize, w.strides, w.padding,
                               {.data_format = w.format}));
  return OkStatus();
}

// Windows are inputs: (input, ksize, strides).
Status MaxPoolV2Grad(GradContext& c) {
  MR_ASSIGN_OR_RETURN(const Window w, WindowOf(c, /*strides=*/false));
  c.set_dx(0, ops::MaxPoolGradV2(c.scope(), c.x(0), c.y(), c.dy(), c.x(1), c.x(2), w.padding,
                                 {.data_format = w.format}));
  return OkStatus();
}
Status MaxPoolGradV2Grad(GradContext& c) {
  MR_ASSIGN_OR_RETURN(const Window w, WindowOf(c, /*strides=*/false));
  SetZeroForBoth(c);
  if (!c.needs_dx(2)) return OkStatus();
  c.set_dx(2, ops::MaxPoolGradGradV2(c.scope(), c.x(0), c.x(1), c.dy(), c.x(3), c.x(4), w.padding,
                                     {.data_format = w.format}));
  return OkStatus();
}

Status MaxPoolWithArgmaxGrad(GradContext& c) {
  MR_ASSIGN_OR_RETURN(const Window w, WindowOf(c));
  MR_ASSIGN_OR_RETURN(const Ints ksize, KsizeOf(c));
  const bool batch = c.op().node()->attrs().GetOr<bool>("include_batch_in_index", false);
  if (!c.dy().valid()) return OkStatus();
  c.set_dx(0, ops::MaxPoolGradWithArgmax(c.scope(), c.x(0), c.dy(), c.y(1), ksize, w.strides,
                                         w.padding, {.include_batch_in_index = batch}));
  return OkStatus();
}

Status MaxPool3DGrad(GradContext& c) {
  MR_ASSIGN_OR_RETURN(const Window w, WindowOf(c));
  MR_ASSIGN_OR_RETURN(const Ints ksize, KsizeOf(c));
  c.set_dx(0, ops::MaxPool3DGrad(c.scope(), c.x(0), c.y(), c.dy(), ksize, w.strides, w.padding,
                                 {.data_format = w.format}));
  return OkStatus();
}
Status MaxPool3DGradGrad(GradContext& c) {
  MR_ASSIGN_OR_RETURN(const Window w, WindowOf(c));
  MR_ASSIGN_OR_RETURN(const Ints ksize, KsizeOf(c));
  SetZeroForBoth(c);
  if (!c.needs_dx(2)) return OkStatus();
  c.set_dx(2, ops::MaxPool3DGradGrad(c.scope(), c.x(0), c.x(1), c.dy(), ksize, w.strides, w.padding,
                                     {.data_format = w.format}));
  return OkStatus();
}
Status MaxPool3DGradGradGrad(GradContext& c) {
  MR_ASSIGN_OR_RETURN(const Window w, WindowOf(c));
  MR_ASSIGN_OR_RETURN(const Ints ksize, KsizeOf(c));
  SetZeroForBoth(c);
  if (!c.needs_dx(2)) return OkStatus();
  c.set_dx(2, ops::MaxPool3DGrad(c.scope(), c.x(0), c.x(1), c.dy(), ksize, w.strides, w.padding,
                                 {.data_format = w.format}));
  return OkStatus();
}

Status AvgPool3DGrad(GradContext& c) {
  const Scope& s = c.scope();
  MR_ASSIGN_OR_RETURN(const Window w, WindowOf(c));
  MR_ASSIGN_OR_RETURN(const Ints ksize, KsizeOf(c));
  c.set_dx(0, ops::AvgPool3DGrad(s, ops::Shape(s, c.x(0)), c.dy(), ksize, w.strides, w.padding,
                                 {.data_format = w.format}));
  return OkStatus();
}
Status AvgPool3DGradGrad(GradContext& c) {
  MR_ASSIGN_OR_RETURN(const Window w, WindowOf(c));
  MR_ASSIGN_OR_RETURN(const Ints ksize, KsizeOf(c));
  c.set_dx(
      1, ops::AvgPool3D(c.scope(), c.dy(), ksize, w.strides, w.padding, {.data_format = w.format}));
  return OkStatus();
}

// What comes back to the places that won.
Status MaxPoolGradGrad(GradContext& c) {
  const Scope& s = c.scope();
  MR_ASSIGN_OR_RETURN(const Window w, WindowOf(c));
  MR_ASSIGN_OR_RETURN(const Ints ksize, c.op().node()->attrs().Get<Ints>("ksize"));
  if (w.padding == "EXPLICIT") {
    return errors::Unimplemented("MaxPoolGrad has a gradient without explicit padding only");
  }
  SetZeroForBoth(c);
  if (!c.needs_dx(2)) return OkStatus();
  c.set_dx(2, ops::MaxPoolGradGrad(s, c.x(0), c.x(1), c.dy(), ksize, w.strides, w.padding,
                                   {.data_format = w.format}));
  return OkStatus();
}

// --- Biases and normalisation -------------------------------------------------------------------
Status BiasAddV1Grad(GradContext& c) {
  c.set_dx(0, c.dy());
  if (c.needs_dx(1)) c.set_dx(1, ops::BiasAddGrad(c.scope(), c.dy()));
  return OkStatus();
}
// The bias' gradient at each place that it was added up from.
Status BiasAddGradGrad(GradContext& c) {
  const Scope& s = c.scope();
  const std::string format = c.op().node()->attrs().GetOr<std::string>("data_format", "NHWC");
  c.set_dx(0, ops::BiasAdd(s, ops::ZerosLike(s, c.x(0)), c.dy(), {.data_format = format}));
  return OkStatus();
}

Status LrnGrad(GradContext& c) {
  const AttrMap& attrs = c.op().node()->attrs();
  c.set_dx(0, ops::LRNGrad(c.scope(), c.dy(), c.x(0), c.y(),
                           {.depth_radius = attrs.GetOr<int64_t>("depth_radius", 5),
                            .bias = attrs.GetOr<float>("bias", 1.0f),
                            .alpha = attrs.GetOr<float>("alpha", 1.0f),
                            .beta = attrs.GetOr<float>("beta", 0.5f)}));
  return OkStatus();
}

// --- Resized images -----------------------------------------------------------------------------
bool Flag(GradContext& c, const char* name) {
  return c.op().node()->attrs().GetOr<bool>(name, false);
}
Output SizeOfImages(const Scope& s, const Output& images) {
  return ops::Slice(s, ops::Shape(s, images), {1}, {2});
}

Status ResizeBilinearGrad(GradContext& c) {
  c.set_dx(0, ops::ResizeBilinearGrad(c.scope(), c.dy(), c.x(0),
                                      {.align_corners = Flag(c, "align_corners"),
                                       .half_pixel_centers = Flag(c, "half_pixel_centers")}));
  return OkStatus();
}
Status ResizeBilinearGradGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::ResizeBilinear(s, c.dy(), SizeOfImages(s, c.x(0)),
                                  {.align_corners = Flag(c, "align_corners"),
                                   .half_pixel_centers = Flag(c, "half_pixel_centers")}));
  return OkStatus();
}
Status ResizeNearestGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0,
           ops::ResizeNearestNeighborGrad(s, c.dy(), SizeOfImages(s, c.x(0)),
                                          {.align_corners = Flag(c, "align_corners"),
                                           .half_pixel_centers = Flag(c, "half_pixel_centers")}));
  return OkStatus();
}
Status ResizeNearestGradGrad(GradContext& c) {
  const Scope& s = c.scope();
  c.set_dx(0, ops::ResizeNearestNeighbor(s, c.dy(), SizeOfImages(s, c.x(0)),
                                         {.align_corners = Flag(c, "align_corners"),
                                          .half_pixel_centers = Flag(c, "half_pixel_centers")}));
  return OkStatus();
}

// Of (image, boxes, box_ind, crop_size).
Status CropAndResizeGrad(GradContext& c) {
  const Scope& s = c.scope();
  const std::string method = c.op().node()->attrs().GetOr<std::string>("method", "bilinear");
  if (c.needs_dx(0)) {
    c.set_dx(0, ops::CropAndResizeGradImage(s, c.dy(), c.x(1), c.x(2), ops::Shape(s, c.x(0)),
                                            BaseType(c.x(0).dtype()), {.method = method}));
  }
  if (c.needs_dx(1)) {
    c.set_dx(1, ops::CropAndResizeGradBoxes(s, c.dy(), c.x(0), c.x(1), c.x(2)));
  }
  return OkStatus();
}

}  // namespace

void RegisterWindowGradients(GradientRegistry& r) {
  r.Register("Conv2DBackpropInput", ByInputGrad<Conv>);
  r.Register("Conv2DBackpropFilter", ByFilterGrad<Conv>);
  r.Register("DepthwiseConv2dNative", ForwardGrad<DepthwiseConv>);
  r.Register("DepthwiseConv2dNativeBackpropInput", ByInputGrad<DepthwiseConv>);
  r.Register("DepthwiseConv2dNativeBackpropFilter", ByFilterGrad<DepthwiseConv>);
  r.Register("AvgPoolGrad", AvgPoolGradGrad);
  r.Register("MaxPoolGrad", MaxPoolGradGrad);
  r.Register("MaxPoolGradGrad", MaxPoolGradGradGrad);
  r.Register("MaxPoolV2", MaxPoolV2Grad);
  r.Register("MaxPoolGradV2", MaxPoolGradV2Grad);
  r.Register("MaxPoolWithArgmax", MaxPoolWithArgmaxGrad);
  r.Register("Conv3D", ForwardGrad<Conv3D>);
  r.Register("Conv3DBackpropInputV2", ByInputGrad<Conv3D>);
  r.Register("Conv3DBackpropFilterV2", ByFilterGrad<Conv3D>);
  r.Register("MaxPool3D", MaxPool3DGrad);
  r.Register("MaxPool3DGrad", MaxPool3DGradGrad);
  r.Register("MaxPool3DGradGrad", MaxPool3DGradGradGrad);
  r.Register("AvgPool3D", AvgPool3DGrad);
  r.Register("AvgPool3DGrad", AvgPool3DGradGrad);
  r.Register("BiasAddV1", BiasAddV1Grad);
  r.Register("BiasAddGrad", BiasAddGradGrad);
  r.Register("LRN", LrnGrad);
  r.Register("ResizeBilinear", ResizeBilinearGrad);
  r.Register("ResizeBilinearGrad", ResizeBilinearGradGrad);
  r.Register("ResizeNearestNeighbor", ResizeNearestGrad);
  r.Register("ResizeNearestNeighborGrad", ResizeNearestGradGrad);
  r.Register("CropAndResize", CropAndResizeGrad);
}

}  // namespace millrace
