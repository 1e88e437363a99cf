// Convolutions for cuDNN: what has to be padded or laid out anew for it, and its algorithms.
#ifndef KERNELS_CUDA_CONV_PLAN_H_
#define KERNELS_CUDA_CONV_PLAN_H_

#include <compare>
#include <cstdint>
#include <memory>

#include "device/cuda/cuda_libraries.h"
#include "kernels/gpu/products.h"
#include "millrace/dtype.h"
#include "millrace/status.h"

namespace millrace {

// cuDNN pads both ends of an axis alike. Where the op does not, images get `before` and `after`
// more rows of zeros (in memory) and `both` is the library's.
struct AxisPadding {
  int64_t both = 0, before = 0, after = 0;

  bool extends() const { return before > 0 || after > 0; }
};
AxisPadding PlanPadding(const gpu::WindowParams& axis);

// What algorithms are chosen by. Sizes of images are those after padding in memory.
struct ConvKey {
  gpu::ConvKind kind{};
  DataType type = kFloat;
  bool channels_first = false;
  int64_t batch = 0, channels = 0, outputs = 0, groups = 1;
  int64_t height = 0, width = 0, out_height = 0, out_width = 0;
  int64_t filter_rows = 0, filter_columns = 0;
  int64_t stride_y = 1, stride_x = 1, dilation_y = 1, dilation_x = 1, pad_y = 0, pad_x = 0;
  bool tf32 = false, deterministic = false;

  friend auto operator<=>(const ConvKey&, const ConvKey&) = default;
};

// The call for a geometry in the given layout, and the paddings that it supposes.
ConvKey MakeConvKey(const gpu::ConvGeometryParams& g, gpu::ConvKind kind, DataType type,
                    bool channels_first);

// Descriptors and the algorithm for a key. Immutable.
class ConvPlan {
 public:
  // At most `workspace_limit` bytes of workspace, and, if the key says so, only algorithms that
  // give the same bits every time. Unimplemented if the library knows no way.
  static StatusOr<std::shared_ptr<const ConvPlan>> Make(const CudnnLibrary& library,
                                                        cudnnHandle_t handle, const ConvKey& key,
                                                        std::size_t workspace_limit);
  ~ConvPlan();
  ConvPlan(const ConvPlan&) = delete;
  ConvPlan& operator=(const ConvPlan&) = delete;

  std::size_t workspace_bytes() const { return workspace_bytes_; }
  // Makes the one of the three that the kind says. The filter is [outputs, rows, columns,
  // channels / groups], or, channels first, [outputs, channels / groups, rows, columns].
  Status Run(cudnnHandle_t handle, void* images, void* filter, void* made, void* workspace) const;

 private:
  ConvPlan(const CudnnLibrary& library, const ConvKey& key) : library_(library), key_(key) {}
  Status MakeDescriptors();
  Status SetImages(cudnnTensorDescriptor_t to, int64_t channels, int64_t height,
                   int64_t width) const;
  Status ChooseAlgorithm(cudnnHandle_t handle, std::size_t workspace_limit);

  const CudnnLibrary& library_;
  const ConvKey key_;
  cudnnTensorDescriptor_t images_ = nullptr, made_ = nullptr;
  cudnnFilterDescriptor_t filter_ = nullptr;
  cudnnConvolutionDescriptor_t convolution_ = nullptr;
  int algorithm_ = 0;  // of the enumeration that belongs to the kind
  std::size_t workspace_bytes_ = 0;
};

}  // namespace millrace

#endif  // KERNELS_CUDA_CONV_PLAN_H_
