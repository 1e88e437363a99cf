// Softmax and cross entropies, local normalization, the largest of rows.
#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/kernel_util.h"
#include "kernels/gpu/body.h"

namespace millrace::gpu {
namespace {

class SoftmaxBody final : public Body {
 public:
  explicit SoftmaxBody(KernelConstruction& c) : log_(c.def().name() == "LogSoftmax") {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& in = call.inputs[0];
    if (in.rank() < 1) {
      return errors::InvalidArgument("logits must have >= 1 dimension, got ",
                                     in.shape().DebugString());
    }
    if (in.num_elements() == 0) return OkStatus();
    const int64_t n = in.dim(in.rank() - 1);
    return ToStatus(loops.Softmax(queue, {log_, in.dtype(), in.raw_data(),
                                          call.outputs[0].raw_data(), in.num_elements() / n, n}));
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
    if (logits.rank() != 2 || backprop.rank() != 2) {
      return errors::InvalidArgument("logits must be 2-D, but got shape ",
                                     logits.shape().DebugString());
    }
    p.rows = backprop.dim(0);
    p.n = backprop.dim(1);
    if (sparse_) {
      if (labels.rank() != 1 || labels.dim(0) != p.rows || !(logits.shape() == backprop.shape())) {
        return errors::InvalidArgument("logits and labels must have the same first dimension, ",
                                       "got logits shape ", logits.shape().DebugString(),
                                       " and labels shape ", labels.shape().DebugString());
      }
      if (p.n == 0 && p.rows > 0) {
        return errors::InvalidArgument("Must have at least one class, but got logits shape ",
                                       logits.shape().DebugString());
      }
      p.label_type = labels.dtype();
      return ToStatus(loops.CrossEntropy(queue, p));
    }
    if (labels.rank() != 2 || !Repeats(logits, p) || !Repeats(labels, p)) {
      return errors::InvalidArgument(
          "logits and labels must be broadcastable 2-D matrices: logits_size=",
          logits.shape().DebugString(), " labels_size=", labels.shape().DebugString());
    }
    p.x_row = logits.dim(0) == 1 ? 0 : logits.dim(1);
    p.x_column = logits.dim(1) == 1 ? 0 : 1;
    p.y_row = labels.dim(0) == 1 ? 0 : labels.dim(1);
    p.y_column = labels.dim(1) == 1 ? 0 : 1;
    return ToStatus(loops.CrossEntropy(queue, p));
  }

 private:
  static bool Repeats(const Tensor& t, const CrossEntropyParams& p) {
    return (t.dim(0) == p.rows || t.dim(0) == 1) && (t.dim(1) == p.n || t.dim(1) == 1);
  }

  const bool sparse_;
};

class InTopKBody final : public Body {
 public:
  explicit InTopKBody(KernelConstruction& c) : k_(c.attrs().GetOr<int64_t>("k", 0)) {}
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor &predictions = call.inputs[0], &targets = call.inputs[1];
    if (predictions.rank() != 2 || targets.rank() != 1 || predictions.dim(0) != targets.dim(0)) {
      return errors::InvalidArgument("predictions must be 2-dimensional and targets a vector of ",
                                     "as many rows, got ", predictions.shape().DebugString(),
                                     " and ", targets.shape().DebugString());
    }
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
    if (in.rank() < 1) return errors::InvalidArgument("input must be >= 1-D, got a scalar");
    const int64_t n = in.dim(in.rank() - 1), k = values.dim(values.rank() - 1);
    if (k > n) {
      return errors::InvalidArgument("input must have at least k columns. Had ", n, ", needed ", k);
    }
    if (values.num_elements() == 0) return OkStatus();
    return ToStatus(
        loops.TopK(queue, {in.dtype(), indices.dtype(), in.raw_data(), values.raw_data(),
                           indices.raw_data(), in.num_elements() / n, n, k}));
  }
};

// Of LRN and LRNGrad.
class LrnBody final : public Body {
 public:
  explicit LrnBody(KernelConstruction& c) : is_gradient_(c.def().name() == "LRNGrad") {
    p_.radius = c.attrs().GetOr<int64_t>("depth_radius", 5);
    p_.bias = c.attrs().GetOr<float>("bias", 1);
    p_.alpha = c.attrs().GetOr<float>("alpha", 1);
    p_.beta = c.attrs().GetOr<float>("beta", 0.5f);
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    const Tensor& images = call.inputs[is_gradient_ ? 1 : 0];
    if (images.rank() != 4) {
      return errors::InvalidArgument("in must be 4-dimensional, got ",
                                     images.shape().DebugString());
    }
    for (const Tensor& input : call.inputs) {
      if (input.shape() == images.shape()) continue;
      return errors::InvalidArgument("input_grads, input_image, and out_image should have the ",
                                     "same shape, got ", input.shape().DebugString(), " and ",
                                     images.shape().DebugString());
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
