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

// What comes back to the places that won.
Status MaxPoolGradGrad(GradContext& c) {
  const Scope& s = c.scope();
  MR_ASSIGN_OR_RETURN(const Window w, WindowOf(c));
  MR_ASSIGN_OR_RETURN(const Ints ksize, c.op().node()->attrs().Get<Ints>("ksize"));
  if (w.format != "NHWC" || w.padding == "EXPLICIT") {
    return errors::Unimplemented(
        "MaxPoolGrad has a gradient for NHWC and without explicit padding");
  }
  for (const int i : {0, 1}) {
    if (c.needs_dx(i)) c.set_dx(i, ops::ZerosLike(s, c.x(i)));
  }
  if (!c.needs_dx(2)) return OkStatus();
  const auto pooled = ops::MaxPoolWithArgmax(s, c.x(0), ksize, w.strides, w.padding,
                                             {.Targmax = kInt64, .include_batch_in_index = true});
  c.set_dx(2, ops::Gather(s, ops::Reshape(s, c.dy(), {-1}), pooled.argmax));
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
