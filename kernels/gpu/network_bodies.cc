// SPDX-License-Identifier: Apache-2.0
// Softmax and cross entropies, local normalization, the largest of rows.
#include <algorithm>

#include "base/status_macros.h"
#include "kernels/gpu/body.h"
#include "kernels/image/lrn_plan.h"
#include "kernels/nn/softmax_plan.h"
#include "kernels/nn/top_k_plan.h"

namespace millrace::gpu {
namespace {

class SoftmaxBody final : public Body {
 public:
  explicit SoftmaxBody(KernelConstruction& c) : log_(c.def().name() == "LogSoftmax") {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& in = call.inputs[0];
    MR_ASSIGN_OR_RETURN(const SoftmaxPlan plan, PlanSoftmax(in.shape()));
    if (in.num_elements() == 0) return OkStatus();
    return ToStatus(loops.Softmax(
        queue, {log_, in.dtype(), in.raw_data(), call.outputs[0].raw_data(), plan.rows, plan.n}));
  }

 private:
  const bool log_;
};

class CrossEntropyBody final : public Body {
 public:
  explicit CrossEntropyBody(KernelConstruction& c)
      : sparse_(c.def().name() == "SparseSoftmaxCrossEntropyWithLogits") {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &logits = call.inputs[0], &labels = call.inputs[1];
    const Tensor &loss = call.outputs[0], &backprop = call.outputs[1];
    CrossEntropyParams p;
    p.type = logits.dtype();
    p.logits = logits.raw_data();
    p.labels = labels.raw_data();
    p.loss = loss.raw_data();
    p.backprop = backprop.raw_data();
    if (sparse_) {
      MR_RETURN_IF_ERROR(CheckSparseCrossEntropy(logits.shape(), labels.shape()));
      p.rows = logits.dim(0);
      p.n = logits.dim(1);
      p.label_type = labels.dtype();
    } else {
      MR_ASSIGN_OR_RETURN(const CrossEntropyPlan plan,
                          PlanCrossEntropy(logits.shape(), labels.shape()));
      p.rows = plan.rows;
      p.n = plan.n;
      p.x_row = plan.x_row;
      p.x_column = plan.x_column;
      p.y_row = plan.y_row;
      p.y_column = plan.y_column;
    }
    MR_RETURN_IF_ERROR(CheckRoom({p.rows, p.n}, backprop));
    return ToStatus(loops.CrossEntropy(queue, p));
  }

 private:
  const bool sparse_;
};

class InTopKBody final : public Body {
 public:
  explicit InTopKBody(KernelConstruction& c) : k_(c.attrs().GetOr<int64_t>("k", 0)) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &predictions = call.inputs[0], &targets = call.inputs[1];
    MR_RETURN_IF_ERROR(CheckInTopK(predictions.shape(), targets.shape()));
    return ToStatus(
        loops.InTopK(queue, {targets.dtype(), predictions.data<float>(), targets.raw_data(),
                             static_cast<bool*>(call.outputs[0].raw_data()), predictions.dim(0),
                             predictions.dim(1), k_}));
  }

 private:
  const int64_t k_;
};

class TopKBody final : public Body {
 public:
  explicit TopKBody(KernelConstruction&) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &in = call.inputs[0], &values = call.outputs[0], &indices = call.outputs[1];
    MR_ASSIGN_OR_RETURN(const TopKPlan plan, PlanTopK(in.shape(), call.inputs[1], indices.dtype()));
    MR_RETURN_IF_ERROR(CheckRoom(plan.out, values));
    if (values.num_elements() == 0) return OkStatus();
    return ToStatus(
        loops.TopK(queue, {in.dtype(), indices.dtype(), in.raw_data(), values.raw_data(),
                           indices.raw_data(), plan.rows, plan.columns, plan.k}));
  }
};

// Of LRN and LRNGrad.
class LrnBody final : public Body {
 public:
  explicit LrnBody(KernelConstruction& c) : is_gradient_(c.def().name() == "LRNGrad") {
    const LrnAttrs attrs(c);
    p_.radius = attrs.radius;
    p_.bias = attrs.bias;
    p_.alpha = attrs.alpha;
    p_.beta = attrs.beta;
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& images = call.inputs[is_gradient_ ? 1 : 0];
    MR_RETURN_IF_ERROR(CheckLrnImages(images.shape()));
    for (const Tensor& input : call.inputs) {
      MR_RETURN_IF_ERROR(CheckLrnInput(images.shape(), input.shape()));
    }
    if (images.num_elements() == 0) return OkStatus();
    LrnParams p = p_;
    p.type = images.dtype();
    p.in = images.raw_data();
    p.out = call.outputs[0].raw_data();
    p.depth = images.dim(3);
    p.pixels = images.num_elements() / p.depth;
    if (!is_gradient_) return ToStatus(loops.Lrn(queue, p));
    p.gradient = call.inputs[0].raw_data();
    p.out_image = call.inputs[2].raw_data();
    return ToStatus(loops.LrnGrad(queue, p));
  }

 private:
  const bool is_gradient_;
  LrnParams p_;
};

}  // namespace

void AddNetworkBodies(std::vector<BodyDef>* bodies) {
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    bodies->push_back({op, {{"T", FloatTypes()}}, &MakeBody<SoftmaxBody>});
  }
  bodies->push_back(
      {"SoftmaxCrossEntropyWithLogits", {{"T", FloatTypes()}}, &MakeBody<CrossEntropyBody>});
  bodies->push_back({"SparseSoftmaxCrossEntropyWithLogits",
                     {{"T", FloatTypes()}, {"Tlabels", {kInt32, kInt64}}},
                     &MakeBody<CrossEntropyBody>});
  bodies->push_back({"InTopK", {{"T", {kInt32, kInt64}}}, &MakeBody<InTopKBody>});
  std::vector<DataType> sortable = FloatAndInt64Types();
  sortable.push_back(kInt32);
  bodies->push_back({"TopKV2", {{"T", sortable}}, &MakeBody<TopKBody>});
  const std::vector<DataType> images = {kFloat, kHalf, kBfloat16};
  for (const char* op : {"LRN", "LRNGrad"}) {
    bodies->push_back({op, {{"T", images}}, &MakeBody<LrnBody>});
  }
}

}  // namespace millrace::gpu
