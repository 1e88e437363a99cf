// SPDX-License-Identifier: Apache-2.0
// Pools over images: what the ops accept, and the sizes that follow. For the
// kernels of all devices; pure.
#ifndef KERNELS_NN_POOL_PLAN_H_
#define KERNELS_NN_POOL_PLAN_H_

#include <cstdint>
#include <vector>

#include "kernels/kernel.h"
#include "kernels/nn/window_plan.h"
#include "millrace/shape.h"
#include "millrace/status.h"
#include "millrace/tensor.h"

namespace millrace {

// The window over depth is of max pools only: it neither overlaps nor is padded.
struct PoolGeometry {
  int64_t batch = 0, channels = 0, depth_window = 1;
  WindowAxis rows, cols;

  int64_t out_channels() const { return channels / depth_window; }
  int64_t image() const { return rows.input * cols.input * channels; }
  int64_t out_image() const { return rows.output * cols.output * out_channels(); }
  Shape OutputShape() const { return {batch, rows.output, cols.output, out_channels()}; }
};

// The attributes of MaxPool, AvgPool and their gradients; ksize and strides may be inputs instead.
class PoolAttrs {
 public:
  // Records an error in `c` if an attribute is not valid.
  explicit PoolAttrs(KernelConstruction& c);

  // `images` in the order of the node's data format. InvalidArgument or Unimplemented for images
  // and windows that do not go together.
  StatusOr<PoolGeometry> Plan(const Shape& images) const;
  // With windows and strides that were inputs, on the host.
  StatusOr<PoolGeometry> Plan(const Shape& images, const Tensor& ksize,
                              const Tensor& strides) const;
  // The shape of what is pooled in the order of the node's data format.
  Shape OutputShape(const PoolGeometry& g) const;
  // True for NCHW.
  bool channels_first() const { return window_.channels_first(); }
  bool over_depth() const { return ksize_[3] != 1; }
  // Why a node is not computed, in the class that TensorFlow has: its kernels on CPUs refuse
  // channels first as invalid before they look at the window.
  Status Refusal(Status status) const;

 private:
  const WindowAttrs window_;
  std::vector<int64_t> ksize_;  // with channels last
};

// InvalidArgument unless what the gradient is given has the shape of what was pooled.
Status CheckMaxPoolGrad(const Shape& pooled, const Shape& orig_output, const Shape& gradient);
Status CheckAvgPoolGrad(const Shape& pooled, const Shape& gradient);

}  // namespace millrace

#endif  // KERNELS_NN_POOL_PLAN_H_
