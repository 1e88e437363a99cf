// SPDX-License-Identifier: Apache-2.0
// Batch normalization in training by cuDNN: descriptors, and what it needs of memory.
#ifndef KERNELS_CUDA_BATCH_NORM_PLAN_H_
#define KERNELS_CUDA_BATCH_NORM_PLAN_H_

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/cuda/driver/cuda_libraries.h"
#include "kernels/gpu/loops/loops.h"
#include "millrace/dtype.h"
#include "millrace/shape.h"
#include "millrace/status.h"

namespace millrace {

struct BatchNormKey {
  DataType type = kFloat;
  bool channels_first = false;
  // The node has an output, and its gradient an input, for what the library keeps.
  bool keeps = false;
  int64_t batch = 0, channels = 0, height = 0, width = 0;

  friend auto operator<=>(const BatchNormKey&, const BatchNormKey&) = default;
};

// For images of rank 4 or 5, whose depth and height become one.
BatchNormKey MakeBatchNormKey(const Shape& images, DataType type, bool channels_first, bool keeps);

// Immutable but for what refused() says. Thread-safe.
//
// With channels last, and where something may be kept, by cuDNN's persistent way, which reads
// images once where they fit into its chip: it demands that what the step forwards left is still
// there for the gradient. Else by its plain one. (With channels first the persistent way sums in
// integers, which overflow where numbers are large.) Its documentation counts neither among what
// gives other bits in other runs.
class BatchNormPlan {
 public:
  // Unimplemented if the library knows no way for these sizes or types.
  static StatusOr<std::shared_ptr<const BatchNormPlan>> Make(const CudnnLibrary& library,
                                                             cudnnHandle_t handle,
                                                             const BatchNormKey& key);
  ~BatchNormPlan();
  BatchNormPlan(const BatchNormPlan&) = delete;
  BatchNormPlan& operator=(const BatchNormPlan&) = delete;

  // Bytes that go from the step forwards to its gradient.
  std::size_t kept_bytes() const { return kept_bytes_; }
  // Of one call.
  std::size_t workspace_bytes(bool is_gradient) const {
    return is_gradient ? backward_bytes_ : forward_bytes_;
  }
  // True once a call was answered with Unimplemented: no step of either direction is to try again.
  bool refused() const { return refused_.load(std::memory_order_relaxed); }

  // `p` as the loops have it, but for p.batch_variance, which becomes 1 / sqrt(variance + epsilon).
  // p.mean and p.variance hold the old running ones, or, for a factor of 1, any numbers. `kept` is
  // written. Unimplemented, with nothing done, if the library does not know it after all.
  Status Forward(cudnnHandle_t handle, const gpu::BatchNormParams& p, void* kept,
                 void* workspace) const;
  // Likewise; p.old_variance is 1 / sqrt(variance + epsilon). `kept` is read.
  Status Backward(cudnnHandle_t handle, const gpu::BatchNormParams& p, void* kept,
                  void* workspace) const;

 private:
  BatchNormPlan(const CudnnLibrary& library, const BatchNormKey& key)
      : library_(library), key_(key) {}
  Status MakeDescriptors();
  Status AskSizes(cudnnHandle_t handle);
  bool is_persistent() const { return key_.keeps && !key_.channels_first; }
  cudnnBatchNormMode_t mode() const {
    return is_persistent() ? CUDNN_BATCHNORM_SPATIAL_PERSISTENT : CUDNN_BATCHNORM_SPATIAL;
  }
  // The outcome of a call, noted if it is a refusal.
  Status Noted(cudnnStatus_t result, const char* call) const;

  const CudnnLibrary& library_;
  const BatchNormKey key_;
  cudnnTensorDescriptor_t images_ = nullptr, vectors_ = nullptr;
  std::size_t kept_bytes_ = 0, forward_bytes_ = 0, backward_bytes_ = 0;
  mutable std::atomic<bool> refused_{false};
};

}  // namespace millrace

#endif  // KERNELS_CUDA_BATCH_NORM_PLAN_H_
