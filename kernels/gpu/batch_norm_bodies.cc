// Batch normalization and its gradient.
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/gpu/batch_norm_call.h"
#include "kernels/gpu/body.h"
#include "kernels/gpu/reduce_plan.h"

namespace millrace::gpu {
namespace {

Status CheckVector(const Tensor& t, int64_t channels) {
  if (t.rank() == 1 && t.dim(0) == channels) return OkStatus();
  return errors::InvalidArgument("a vector of ", channels, " channels was expected, got shape ",
                                 t.shape().DebugString());
}

float* Floats(const Tensor& t) { return static_cast<float*>(t.raw_data()); }

StatusOr<BatchNormParams> PlanForward(const BatchNormAttrs& attrs, const StreamCall& call) {
  MR_ASSIGN_OR_RETURN(BatchNormParams p, PlanBatchNormSizes(attrs, call.inputs[0]));
  for (int i = 1; i < 5; ++i) {
    if (i > 2 && attrs.training && attrs.factor == 1.0f) continue;  // needs no estimates
    MR_RETURN_IF_ERROR(CheckVector(call.inputs[i], p.channels));
  }
  p.scale = Floats(call.inputs[1]);
  p.offset = Floats(call.inputs[2]);
  p.old_mean = Floats(call.inputs[3]);
  p.old_variance = Floats(call.inputs[4]);
  p.y = call.outputs[0].raw_data();
  p.mean = Floats(call.outputs[1]);
  p.variance = Floats(call.outputs[2]);
  p.batch_mean = Floats(call.outputs[3]);
  p.batch_variance = Floats(call.outputs[4]);
  return p;
}

StatusOr<BatchNormParams> PlanGradient(const BatchNormAttrs& attrs, const StreamCall& call) {
  const Tensor &dy = call.inputs[0], &x = call.inputs[1];
  MR_ASSIGN_OR_RETURN(BatchNormParams p, PlanBatchNormSizes(attrs, x));
  if (!(dy.shape() == x.shape())) {
    return errors::InvalidArgument("x and y_backprop must have the same shape, got ",
                                   x.shape().DebugString(), " and ", dy.shape().DebugString());
  }
  for (int i = 2; i < 5; ++i) MR_RETURN_IF_ERROR(CheckVector(call.inputs[i], p.channels));
  p.dy = dy.raw_data();
  p.scale = Floats(call.inputs[2]);
  p.old_mean = Floats(call.inputs[3]);
  p.old_variance = Floats(call.inputs[4]);
  p.dx = call.outputs[0].raw_data();
  p.d_scale = Floats(call.outputs[1]);
  p.d_offset = Floats(call.outputs[2]);
  return p;
}

class BatchNormBody final : public Body {
 public:
  explicit BatchNormBody(KernelConstruction& c) : attrs_(c) {}

  int64_t ScratchBytes(const StreamCall& call, const Loops&) const override {
    const StatusOr<BatchNormParams> p =
        PlanBatchNormSizes(attrs_, call.inputs[attrs_.is_gradient ? 1 : 0]);
    if (!p.ok() || p->inner != 1) return 0;  // Run will say so
    return (2 * Chunks(*p) + 3) * p->channels * static_cast<int64_t>(sizeof(float));
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    MR_ASSIGN_OR_RETURN(BatchNormParams p, PlanBatchNorm(attrs_, call));
    p.chunks = Chunks(p);
    p.scratch = call.scratch.raw_data();
    if (attrs_.is_gradient) return ToStatus(loops.BatchNormGrad(queue, p));
    // What a library would have kept for its gradient.
    if (call.outputs.size() > 5) MR_RETURN_IF_ERROR(FillZeros(loops, queue, call.outputs[5]));
    return ToStatus(loops.BatchNorm(queue, p));
  }

 private:
  static int64_t Chunks(const BatchNormParams& p) { return PlanChunks(true, p.channels, p.outer); }

  const BatchNormAttrs attrs_;
};

}  // namespace

BatchNormAttrs::BatchNormAttrs(KernelConstruction& c)
    : epsilon(c.attrs().GetOr<float>("epsilon", 0.0001f)),
      factor(c.attrs().GetOr<float>("exponential_avg_factor", 1.0f)),
      training(c.attrs().GetOr<bool>("is_training", true)),
      is_gradient(c.def().name().starts_with("FusedBatchNormGrad")) {
  const auto format = c.attrs().GetOr<std::string>("data_format", "NHWC");
  channels_first = format.size() > 1 && format[1] == 'C';
}

StatusOr<BatchNormParams> PlanBatchNormSizes(const BatchNormAttrs& attrs, const Tensor& x) {
  if (x.rank() != 4 && x.rank() != 5) {
    return errors::InvalidArgument("input must be 4 or 5-dimensional", x.shape().DebugString());
  }
  const int axis = attrs.channels_first ? 1 : x.rank() - 1;
  BatchNormParams p;
  p.type = x.dtype();
  p.outer = p.inner = 1;
  p.channels = x.dim(axis);
  for (int i = 0; i < axis; ++i) p.outer *= x.dim(i);
  for (int i = axis + 1; i < x.rank(); ++i) p.inner *= x.dim(i);
  p.training = attrs.training;
  p.epsilon = attrs.epsilon;
  p.factor = attrs.factor;
  p.x = x.raw_data();
  return p;
}

StatusOr<BatchNormParams> PlanBatchNorm(const BatchNormAttrs& attrs, const StreamCall& call) {
  return attrs.is_gradient ? PlanGradient(attrs, call) : PlanForward(attrs, call);
}

void AddBatchNormBodies(std::vector<BodyDef>* bodies) {
  const std::vector<DataType> images = {kFloat, kHalf, kBfloat16};
  for (const char* op : {"FusedBatchNorm", "FusedBatchNormGrad"}) {
    bodies->push_back({op, {{"T", {kFloat}}}, &MakeBody<BatchNormBody>});
  }
  for (const char* op :
       {"FusedBatchNormV2", "FusedBatchNormGradV2", "FusedBatchNormV3", "FusedBatchNormGradV3"}) {
    bodies->push_back({op, {{"T", images}, {"U", {kFloat}}}, &MakeBody<BatchNormBody>});
  }
}

}  // namespace millrace::gpu
