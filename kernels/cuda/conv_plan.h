// SPDX-License-Identifier: Apache-2.0
// Convolutions for cuDNN: what has to be padded or laid out anew for it, and its algorithms.
#ifndef KERNELS_CUDA_CONV_PLAN_H_
#define KERNELS_CUDA_CONV_PLAN_H_

#include <atomic>
#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/cuda/driver/cuda_libraries.h"
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
  // What follows a convolution forwards within the library's call.
  enum class Epilogue : uint8_t { kNone, kBias, kBiasRelu };

  gpu::ConvKind kind{};
  Epilogue epilogue = Epilogue::kNone;
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

// What a call reads and writes: the one of the first three that the kind says is made. The filter
// is [outputs, rows, columns, channels / groups], or, channels first, [outputs, channels / groups,
// rows, columns].
struct ConvOperands {
  void* images = nullptr;
  void* filter = nullptr;
  void* made = nullptr;
  const void* bias = nullptr;  // one per output, of the key's type; with an epilogue only
};

// Descriptors and the algorithms for a key, the fastest first. Immutable but for which of them is
// to be tried first. Thread-safe.
//
// cuDNN adds a bias alone within IMPLICIT_PRECOMP_GEMM only, Relu within any algorithm: a plan for
// the former has choices if that is the fastest of all, as a faster algorithm and a pass for the
// bias are better than a slower one.
class ConvPlan {
 public:
  // At most `workspace_limit` bytes of workspace, and, if the key says so, only algorithms that
  // give the same bits every time. A plan without choices if the library knows no way.
  static StatusOr<std::shared_ptr<const ConvPlan>> Make(const CudnnLibrary& library,
                                                        cudnnHandle_t handle, const ConvKey& key,
                                                        std::size_t workspace_limit);
  ~ConvPlan();
  ConvPlan(const ConvPlan&) = delete;
  ConvPlan& operator=(const ConvPlan&) = delete;

  // Choices first_choice() to num_choices() - 1 are left.
  int num_choices() const { return static_cast<int>(choices_.size()); }
  int first_choice() const { return first_.load(std::memory_order_relaxed); }
  // `choice` failed: nobody is to try it, or one before it, again.
  void PassOver(int choice) const;

  std::size_t workspace_bytes(int choice) const { return choices_[choice].workspace_bytes; }
  // Unimplemented, with nothing issued, if the library does not know this choice after all.
  Status Run(cudnnHandle_t handle, int choice, const ConvOperands& operands, void* workspace) const;

 private:
  struct Choice {
    int algorithm = 0;  // of the enumeration that belongs to the kind
    std::size_t workspace_bytes = 0;
    // Of its own: an algorithm is chosen together with its arithmetic.
    cudnnConvolutionDescriptor_t convolution = nullptr;
  };

  ConvPlan(const CudnnLibrary& library, const ConvKey& key) : library_(library), key_(key) {}
  Status MakeDescriptors();
  Status SetImages(cudnnTensorDescriptor_t to, int64_t channels, int64_t height,
                   int64_t width) const;
  Status MakeEpilogue();
  Status MakeConvolution(cudnnMathType_t math, cudnnConvolutionDescriptor_t* made) const;
  Status ListAlgorithms(cudnnHandle_t handle, std::size_t workspace_limit);
  template <typename Perf>
  Status AddChoices(const Perf* found, int count, std::size_t workspace_limit);
  cudnnStatus_t Call(cudnnHandle_t handle, const Choice& choice, const ConvOperands& operands,
                     void* workspace) const;

  const CudnnLibrary& library_;
  const ConvKey key_;
  cudnnTensorDescriptor_t images_ = nullptr, made_ = nullptr, bias_ = nullptr;
  cudnnFilterDescriptor_t filter_ = nullptr;
  cudnnActivationDescriptor_t activation_ = nullptr;
  cudnnConvolutionDescriptor_t convolution_ = nullptr;  // what algorithms are asked for
  std::vector<Choice> choices_;
  mutable std::atomic<int> first_{0};
};

}  // namespace millrace

#endif  // KERNELS_CUDA_CONV_PLAN_H_
