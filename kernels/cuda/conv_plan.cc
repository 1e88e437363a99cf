// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/conv_plan.h"

#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

StatusOr<cudnnDataType_t> DataTypeFor(DataType type) {
  switch (type) {
    case kFloat:
      return CUDNN_DATA_FLOAT;
    case kDouble:
      return CUDNN_DATA_DOUBLE;
    case kHalf:
      return CUDNN_DATA_HALF;
    case kBfloat16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return errors::Unimplemented("cuDNN does not convolve ", DataTypeName(type));
  }
}

cudnnMathType_t MathTypeFor(const ConvKey& key) {
  if (key.type == kHalf || key.type == kBfloat16) return CUDNN_TENSOR_OP_MATH;
  // The default of newer parts is TensorFloat-32.
  return key.type == kFloat && !key.tf32 ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH;
}

bool FitsInt(const ConvKey& k) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  const int64_t image = k.channels * k.height * k.width;
  const int64_t made = k.outputs * k.out_height * k.out_width;
  return k.batch * image <= kMost && k.batch * made <= kMost;
}

#define MR_DNN(call) MR_RETURN_IF_ERROR(CudnnStatus(library_.call, #call))

bool IsRefusal(cudnnStatus_t status) {
  return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED;
}

}  // namespace

AxisPadding PlanPadding(const gpu::WindowParams& w) {
  const int64_t effective = (w.size - 1) * w.dilation + 1;
  const int64_t needed = (w.output - 1) * w.stride + effective - w.input - w.pad;
  const int64_t after = std::max<int64_t>(0, needed);  // rows that no window reaches need none
  AxisPadding padding;
  padding.both = std::min(w.pad, after);
  padding.before = w.pad - padding.both;
  padding.after = after - padding.both;
  return padding;
}

ConvKey MakeConvKey(const gpu::ConvGeometryParams& g, gpu::ConvKind kind, DataType type,
                    bool channels_first) {
  const AxisPadding rows = PlanPadding(g.rows), cols = PlanPadding(g.cols);
  ConvKey key;
  key.kind = kind;
  key.type = type;
  key.channels_first = channels_first;
  key.batch = g.batch;
  key.channels = g.channels;
  key.outputs = g.outputs;
  key.groups = g.groups;
  key.height = g.rows.input + rows.before + rows.after;
  key.width = g.cols.input + cols.before + cols.after;
  key.out_height = g.rows.output;
  key.out_width = g.cols.output;
  key.filter_rows = g.rows.size;
  key.filter_columns = g.cols.size;
  key.stride_y = g.rows.stride;
  key.stride_x = g.cols.stride;
  key.dilation_y = g.rows.dilation;
  key.dilation_x = g.cols.dilation;
  key.pad_y = rows.both;
  key.pad_x = cols.both;
  return key;
}

StatusOr<std::shared_ptr<const ConvPlan>> ConvPlan::Make(const CudnnLibrary& library,
                                                         cudnnHandle_t handle, const ConvKey& key,
                                                         std::size_t workspace_limit) {
  std::shared_ptr<ConvPlan> plan(new ConvPlan(library, key));
  if (!FitsInt(key)) return std::shared_ptr<const ConvPlan>(std::move(plan));
  MR_RETURN_IF_ERROR(plan->MakeDescriptors());
  MR_RETURN_IF_ERROR(plan->ListAlgorithms(handle, workspace_limit));
  return std::shared_ptr<const ConvPlan>(std::move(plan));
}

ConvPlan::~ConvPlan() {
  for (cudnnTensorDescriptor_t tensor : {images_, made_, bias_}) {
    if (tensor != nullptr) library_.cudnnDestroyTensorDescriptor(tensor);
  }
  if (filter_ != nullptr) library_.cudnnDestroyFilterDescriptor(filter_);
  if (activation_ != nullptr) library_.cudnnDestroyActivationDescriptor(activation_);
  if (convolution_ != nullptr) library_.cudnnDestroyConvolutionDescriptor(convolution_);
  for (const Choice& choice : choices_) {
    if (choice.convolution != nullptr) {
      library_.cudnnDestroyConvolutionDescriptor(choice.convolution);
    }
  }
}

void ConvPlan::PassOver(int choice) const {
  int first = first_.load(std::memory_order_relaxed);
  while (first <= choice &&
         !first_.compare_exchange_weak(first, choice + 1, std::memory_order_relaxed)) {
  }
}

Status ConvPlan::SetImages(cudnnTensorDescriptor_t to, int64_t channels, int64_t height,
                           int64_t width) const {
  MR_ASSIGN_OR_RETURN(const cudnnDataType_t type, DataTypeFor(key_.type));
  const gpu::ImageStrides s = gpu::StridesOf(height, width, channels, key_.channels_first);
  MR_DNN(cudnnSetTensor4dDescriptorEx(
      to, type, static_cast<int>(key_.batch), static_cast<int>(channels), static_cast<int>(height),
      static_cast<int>(width), static_cast<int>(s.batch), static_cast<int>(s.channel),
      static_cast<int>(s.y), static_cast<int>(s.x)));
  return OkStatus();
}

Status ConvPlan::MakeDescriptors() {
  MR_ASSIGN_OR_RETURN(const cudnnDataType_t type, DataTypeFor(key_.type));
  MR_DNN(cudnnCreateTensorDescriptor(&images_));
  MR_DNN(cudnnCreateTensorDescriptor(&made_));
  MR_DNN(cudnnCreateFilterDescriptor(&filter_));
  MR_RETURN_IF_ERROR(SetImages(images_, key_.channels, key_.height, key_.width));
  MR_RETURN_IF_ERROR(SetImages(made_, key_.outputs, key_.out_height, key_.out_width));
  MR_DNN(cudnnSetFilter4dDescriptor(
      filter_, type, key_.channels_first ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC,
      static_cast<int>(key_.outputs), static_cast<int>(key_.channels / key_.groups),
      static_cast<int>(key_.filter_rows), static_cast<int>(key_.filter_columns)));
  if (key_.epilogue != ConvKey::Epilogue::kNone) MR_RETURN_IF_ERROR(MakeEpilogue());
  return MakeConvolution(MathTypeFor(key_), &convolution_);
}

Status ConvPlan::MakeEpilogue() {
  MR_ASSIGN_OR_RETURN(const cudnnDataType_t type, DataTypeFor(key_.type));
  const int outputs = static_cast<int>(key_.outputs);
  MR_DNN(cudnnCreateTensorDescriptor(&bias_));
  MR_DNN(cudnnSetTensor4dDescriptorEx(bias_, type, 1, outputs, 1, 1, outputs, 1, 1, 1));
  MR_DNN(cudnnCreateActivationDescriptor(&activation_));
  MR_DNN(cudnnSetActivationDescriptor(activation_,
                                      key_.epilogue == ConvKey::Epilogue::kBiasRelu
                                          ? CUDNN_ACTIVATION_RELU
                                          : CUDNN_ACTIVATION_IDENTITY,
                                      CUDNN_PROPAGATE_NAN, 0));
  return OkStatus();
}

Status ConvPlan::MakeConvolution(cudnnMathType_t math, cudnnConvolutionDescriptor_t* made) const {
  const cudnnDataType_t computed = key_.type == kDouble ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  MR_DNN(cudnnCreateConvolutionDescriptor(made));
  MR_DNN(cudnnSetConvolution2dDescriptor(
      *made, static_cast<int>(key_.pad_y), static_cast<int>(key_.pad_x),
      static_cast<int>(key_.stride_y), static_cast<int>(key_.stride_x),
      static_cast<int>(key_.dilation_y), static_cast<int>(key_.dilation_x), CUDNN_CROSS_CORRELATION,
      computed));
  MR_DNN(cudnnSetConvolutionGroupCount(*made, static_cast<int>(key_.groups)));
  MR_DNN(cudnnSetConvolutionMathType(*made, math));
  return OkStatus();
}

// `found` is sorted from the fastest on.
template <typename Perf>
Status ConvPlan::AddChoices(const Perf* found, int count, std::size_t limit) {
  for (int i = 0; i < count; ++i) {
    if (found[i].status != CUDNN_STATUS_SUCCESS || found[i].memory > limit) continue;
    if (key_.deterministic && found[i].determinism != CUDNN_DETERMINISTIC) continue;
    const int algorithm = static_cast<int>(found[i].algo);
    if (key_.epilogue == ConvKey::Epilogue::kBias &&
        algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) {
      break;
    }
    Choice& choice = choices_.emplace_back(Choice{algorithm, found[i].memory});
    // A choice holds for the arithmetic that it was made for.
    MR_RETURN_IF_ERROR(
        MakeConvolution(MathTypeFor(key_) == CUDNN_FMA_MATH ? CUDNN_FMA_MATH : found[i].mathType,
                        &choice.convolution));
  }
  return OkStatus();
}

Status ConvPlan::ListAlgorithms(cudnnHandle_t handle, std::size_t limit) {
  // No more than there are of a kind.
  constexpr int kMost = 10;
  int count = 0;
  cudnnStatus_t status;
  if (key_.kind == gpu::ConvKind::kForward) {
    cudnnConvolutionFwdAlgoPerf_t found[kMost];
    status = library_.cudnnGetConvolutionForwardAlgorithm_v7(handle, images_, filter_, convolution_,
                                                             made_, kMost, &count, found);
    if (status == CUDNN_STATUS_SUCCESS) return AddChoices(found, count, limit);
  } else if (key_.kind == gpu::ConvKind::kInput) {
    cudnnConvolutionBwdDataAlgoPerf_t found[kMost];
    status = library_.cudnnGetConvolutionBackwardDataAlgorithm_v7(
        handle, filter_, made_, convolution_, images_, kMost, &count, found);
    if (status == CUDNN_STATUS_SUCCESS) return AddChoices(found, count, limit);
  } else {
    cudnnConvolutionBwdFilterAlgoPerf_t found[kMost];
    status = library_.cudnnGetConvolutionBackwardFilterAlgorithm_v7(
        handle, images_, made_, convolution_, filter_, kMost, &count, found);
    if (status == CUDNN_STATUS_SUCCESS) return AddChoices(found, count, limit);
  }
  return IsRefusal(status) ? OkStatus() : CudnnStatus(status, "cudnnGetConvolution...Algorithm_v7");
}

Status ConvPlan::Run(cudnnHandle_t handle, int choice, const ConvOperands& operands,
                     void* workspace) const {
  const cudnnStatus_t status = Call(handle, choices_[choice], operands, workspace);
  if (IsRefusal(status)) return errors::Unimplemented("cuDNN does not support this convolution");
  return CudnnStatus(status, "cudnnConvolution...");
}

cudnnStatus_t ConvPlan::Call(cudnnHandle_t handle, const Choice& choice, const ConvOperands& o,
                             void* workspace) const {
  const float one = 1, zero = 0;
  const double wide_one = 1, wide_zero = 0;
  const bool wide = key_.type == kDouble;
  const void* const alpha = wide ? static_cast<const void*>(&wide_one) : &one;
  const void* const beta = wide ? static_cast<const void*>(&wide_zero) : &zero;
  const auto forward = static_cast<cudnnConvolutionFwdAlgo_t>(choice.algorithm);
  switch (key_.kind) {
    case gpu::ConvKind::kForward:
      if (key_.epilogue != ConvKey::Epilogue::kNone) {
        // What is added beside the bias, 0 times: what is made.
        return library_.cudnnConvolutionBiasActivationForward(
            handle, alpha, images_, o.images, filter_, o.filter, choice.convolution, forward,
            workspace, choice.workspace_bytes, beta, made_, o.made, bias_, o.bias, activation_,
            made_, o.made);
      }
      return library_.cudnnConvolutionForward(handle, alpha, images_, o.images, filter_, o.filter,
                                              choice.convolution, forward, workspace,
                                              choice.workspace_bytes, beta, made_, o.made);
    case gpu::ConvKind::kInput:
      return library_.cudnnConvolutionBackwardData(
          handle, alpha, filter_, o.filter, made_, o.made, choice.convolution,
          static_cast<cudnnConvolutionBwdDataAlgo_t>(choice.algorithm), workspace,
          choice.workspace_bytes, beta, images_, o.images);
    default:
      return library_.cudnnConvolutionBackwardFilter(
          handle, alpha, images_, o.images, made_, o.made, choice.convolution,
          static_cast<cudnnConvolutionBwdFilterAlgo_t>(choice.algorithm), workspace,
          choice.workspace_bytes, beta, filter_, o.filter);
  }
}

#undef MR_DNN

}  // namespace millrace
