// SPDX-License-Identifier: Apache-2.0
// Batch normalization and its gradient.
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "kernels/gpu/batch_norm_call.h"
#include "kernels/gpu/body.h"
#include "kernels/gpu/reduce_plan.h"
#include "kernels/nn/batch_norm_plan.h"

namespace millrace::gpu {
namespace {

float* Floats(const Tensor& t) { return static_cast<float*>(t.raw_data()); }

BatchNormParams ParamsFor(const BatchNormAttrs& attrs, const Tensor& x, const ChannelView& view) {
  BatchNormParams p;
  p.type = x.dtype();
  p.outer = view.outer;
  p.channels = view.channels;
  p.inner = view.inner;
  p.training = attrs.training;
  p.epsilon = attrs.epsilon;
  p.factor = attrs.factor;
  p.x = x.raw_data();
  return p;
}

StatusOr<BatchNormParams> PlanForward(const BatchNormAttrs& attrs, const StreamCall& call) {
  const auto shape = [&call](int i) { return &call.inputs[i].shape(); };
  MR_ASSIGN_OR_RETURN(
      const ChannelView view,
      PlanNormalization(*shape(0), attrs.channels_first, {shape(1), shape(2), shape(3), shape(4)},
                        !attrs.training || attrs.factor != 1.0f));
  BatchNormParams p = ParamsFor(attrs, call.inputs[0], view);
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
  const auto shape = [&call](int i) { return &call.inputs[i].shape(); };
  MR_ASSIGN_OR_RETURN(const ChannelView view,
                      PlanNormalizationGrad(*shape(0), *shape(1), attrs.channels_first,
                                            {shape(2), shape(3), shape(4)}));
  BatchNormParams p = ParamsFor(attrs, x, view);
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
  MR_ASSIGN_OR_RETURN(const ChannelView view, ViewImages(x.shape(), attrs.channels_first));
  return ParamsFor(attrs, x, view);
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
