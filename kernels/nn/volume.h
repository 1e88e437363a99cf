// SPDX-License-Identifier: Apache-2.0
// Windows that slide over volumes: the geometry shared by 3-D convolutions and pools. See window.h
// for images.
#ifndef KERNELS_NN_VOLUME_H_
#define KERNELS_NN_VOLUME_H_

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/kernel.h"
#include "kernels/kernel_context.h"
#include "kernels/kernel_registry.h"
#include "kernels/nn/window.h"
#include "millrace/shape.h"
#include "millrace/tensor.h"

namespace millrace {

// Axes are planes, rows and columns.
struct VolumeGeometry {
  int64_t batch = 0, channels = 0, out_channels = 0;
  std::array<WindowAxis, 3> axes;

  // Of one volume: its elements without channels, windows over it, elements of a window.
  int64_t places() const { return axes[0].input * axes[1].input * axes[2].input; }
  int64_t positions() const { return axes[0].output * axes[1].output * axes[2].output; }
  int64_t taps() const { return axes[0].size * axes[1].size * axes[2].size; }
  // Elements with channels, of what is seen and of what is made.
  int64_t volume() const { return places() * channels; }
  int64_t out_volume() const { return positions() * out_channels; }
  // Along each axis, where the window of an output position begins; negative in the padding.
  std::array<int64_t, 3> Begin(int64_t position) const {
    std::array<int64_t, 3> begin;
    for (int i = 2; i >= 0; --i) {
      begin[i] = position % axes[i].output * axes[i].stride - axes[i].pad_before;
      position /= axes[i].output;
    }
    return begin;
  }
};

// The attributes strides, dilations, ksize, padding and data_format of a node. Values for each axis
// are in the order NDHWC here, whatever the data format; those of images get a plane.
class VolumeAttrs {
 public:
  // Records an error in `c` if an attribute is not valid. Ops with "3D" in their names are those of
  // volumes.
  explicit VolumeAttrs(KernelConstruction& c);

  // Of the node's tensors: 4 or 5.
  int rank() const { return rank_; }
  bool channels_first() const { return channels_first_; }
  const std::vector<int64_t>& ksize() const { return ksize_; }
  // Takes ksize and strides from the last two inputs, which the forms V2 have instead of
  // attributes.
  Status ReadInputs(KernelContext& ctx);

  // [batch, planes, rows, columns, channels]. `shape` has rank().
  Shape Canonical(const Shape& shape) const;
  // The reverse.
  Shape InFormat(Shape shape) const;

  // `input` is canonical. InvalidArgument if the windows do not fit.
  StatusOr<std::array<WindowAxis, 3>> Axes(const Shape& input,
                                           const std::array<int64_t, 3>& sizes) const;

  // `t` with its channels last: itself, or a copy. ResourceExhausted without memory.
  StatusOr<Tensor> Operand(KernelContext& ctx, const Tensor& t) const;
  // Copies `made`, which has channels last, into the node's output of another format.
  Status CopyToFormat(KernelContext& ctx, const Tensor& made, Tensor* out) const;

 private:
  std::vector<int64_t> Canonical(std::vector<int64_t> values) const;
  Status Read(const char* name, std::vector<int64_t> values, std::vector<int64_t>* to) const;

  const bool same_;
  const int rank_;
  bool channels_first_ = false;
  std::vector<int64_t> strides_, dilations_, ksize_;
};

void RegisterVolumePoolKernels(KernelRegistry& registry);
void RegisterVolumeConvKernels(KernelRegistry& registry);

}  // namespace millrace

#endif  // KERNELS_NN_VOLUME_H_
