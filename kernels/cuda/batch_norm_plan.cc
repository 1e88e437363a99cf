// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/batch_norm_plan.h"

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

StatusOr<cudnnDataType_t> DataTypeFor(DataType type) {
  switch (type) {
    case kFloat:
      return CUDNN_DATA_FLOAT;
    case kHalf:
      return CUDNN_DATA_HALF;
    case kBfloat16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return errors::Unimplemented("cuDNN does not normalize ", DataTypeName(type));
  }
}

// A refusal is one for what the library does not know, not for what went wrong.
Status ToStatus(cudnnStatus_t result, const char* call) {
  if (CUDNN_STATUS_CATEGORY(result) == CUDNN_STATUS_NOT_SUPPORTED) {
    return errors::Unimplemented("cuDNN does not support this batch normalization (", call, ")");
  }
  return CudnnStatus(result, call);
}

#define MR_DNN(call) MR_RETURN_IF_ERROR(ToStatus(library_.call, #call))

constexpr cudnnBatchNormOps_t kOps = CUDNN_BATCHNORM_OPS_BN;
const float kOne = 1, kZero = 0;  // of all types of images

}  // namespace

BatchNormKey MakeBatchNormKey(const Shape& images, DataType type, bool channels_first, bool keeps) {
  const int rank = images.rank(), first = channels_first ? 2 : 1;  // the first spatial axis
  BatchNormKey key;
  key.type = type;
  key.channels_first = channels_first;
  key.keeps = keeps;
  key.batch = images.dim(0);
  key.channels = images.dim(channels_first ? 1 : rank - 1);
  key.height = images.dim(first) * (rank == 5 ? images.dim(first + 1) : 1);
  key.width = images.dim(first + rank - 3);
  return key;
}

StatusOr<std::shared_ptr<const BatchNormPlan>> BatchNormPlan::Make(const CudnnLibrary& library,
                                                                   cudnnHandle_t handle,
                                                                   const BatchNormKey& key) {
  if (key.batch * key.channels * key.height * key.width >= int64_t{1} << 31) {
    return errors::Unimplemented("images of 2^31 elements or more");
  }
  std::shared_ptr<BatchNormPlan> plan(new BatchNormPlan(library, key));
  MR_RETURN_IF_ERROR(plan->MakeDescriptors());
  MR_RETURN_IF_ERROR(plan->AskSizes(handle));
  return std::shared_ptr<const BatchNormPlan>(std::move(plan));
}

BatchNormPlan::~BatchNormPlan() {
  if (images_ != nullptr) library_.cudnnDestroyTensorDescriptor(images_);
  if (vectors_ != nullptr) library_.cudnnDestroyTensorDescriptor(vectors_);
}

Status BatchNormPlan::MakeDescriptors() {
  MR_ASSIGN_OR_RETURN(const cudnnDataType_t type, DataTypeFor(key_.type));
  const int batch = static_cast<int>(key_.batch), channels = static_cast<int>(key_.channels);
  MR_DNN(cudnnCreateTensorDescriptor(&images_));
  MR_DNN(cudnnCreateTensorDescriptor(&vectors_));
  MR_DNN(cudnnSetTensor4dDescriptor(
      images_, key_.channels_first ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC, type, batch, channels,
      static_cast<int>(key_.height), static_cast<int>(key_.width)));
  MR_DNN(
      cudnnSetTensor4dDescriptor(vectors_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, channels, 1, 1));
  return OkStatus();
}

Status BatchNormPlan::AskSizes(cudnnHandle_t handle) {
  if (!is_persistent()) return OkStatus();
  MR_DNN(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
      handle, mode(), kOps, images_, nullptr, images_, vectors_, nullptr, &forward_bytes_));
  MR_DNN(cudnnGetBatchNormalizationBackwardExWorkspaceSize(handle, mode(), kOps, images_, nullptr,
                                                           images_, nullptr, images_, vectors_,
                                                           nullptr, &backward_bytes_));
  MR_DNN(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle, mode(), kOps, nullptr,
                                                              images_, &kept_bytes_));
  return OkStatus();
}

#undef MR_DNN

Status BatchNormPlan::Noted(cudnnStatus_t result, const char* call) const {
  Status status = ToStatus(result, call);
  if (errors::IsUnimplemented(status)) refused_.store(true, std::memory_order_relaxed);
  return status;
}

Status BatchNormPlan::Forward(cudnnHandle_t handle, const gpu::BatchNormParams& p, void* kept,
                              void* workspace) const {
  const auto factor = static_cast<double>(p.factor), epsilon = static_cast<double>(p.epsilon);
  if (!is_persistent()) {
    return Noted(library_.cudnnBatchNormalizationForwardTraining(
                     handle, mode(), &kOne, &kZero, images_, p.x, images_, p.y, vectors_, p.scale,
                     p.offset, factor, p.mean, p.variance, epsilon, p.batch_mean, p.batch_variance),
                 "cudnnBatchNormalizationForwardTraining");
  }
  return Noted(
      library_.cudnnBatchNormalizationForwardTrainingEx(
          handle, mode(), kOps, &kOne, &kZero, images_, p.x, nullptr, nullptr, images_, p.y,
          vectors_, p.scale, p.offset, factor, p.mean, p.variance, epsilon, p.batch_mean,
          p.batch_variance, nullptr, workspace, forward_bytes_, kept, kept_bytes_),
      "cudnnBatchNormalizationForwardTrainingEx");
}

Status BatchNormPlan::Backward(cudnnHandle_t handle, const gpu::BatchNormParams& p, void* kept,
                               void* workspace) const {
  const auto epsilon = static_cast<double>(p.epsilon);
  if (!is_persistent()) {
    return Noted(
        library_.cudnnBatchNormalizationBackward(
            handle, mode(), &kOne, &kZero, &kOne, &kZero, images_, p.x, images_, p.dy, images_,
            p.dx, vectors_, p.scale, p.d_scale, p.d_offset, epsilon, p.old_mean, p.old_variance),
        "cudnnBatchNormalizationBackward");
  }
  return Noted(library_.cudnnBatchNormalizationBackwardEx(
                   handle, mode(), kOps, &kOne, &kZero, &kOne, &kZero, images_, p.x, nullptr,
                   nullptr, images_, p.dy, nullptr, nullptr, images_, p.dx, vectors_, p.scale,
                   nullptr, p.d_scale, p.d_offset, epsilon, p.old_mean, p.old_variance, nullptr,
                   workspace, backward_bytes_, kept, kept_bytes_),
               "cudnnBatchNormalizationBackwardEx");
}

}  // namespace millrace
