// Pools over rows and columns.
#include <algorithm>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/gpu/body.h"
#include "kernels/gpu/products.h"
#include "kernels/nn/window.h"

namespace millrace::gpu {
namespace {

class PoolBody final : public Body {
 public:
  explicit PoolBody(KernelConstruction& c)
      : attrs_(c), ksize_(c.attr<std::vector<int64_t>>("ksize")) {
    const std::string& op = c.def().name();
    kind_ = op == "MaxPool"       ? PoolKind::kMax
            : op == "MaxPoolGrad" ? PoolKind::kMaxGrad
            : op == "AvgPool"     ? PoolKind::kAverage
                                  : PoolKind::kAverageGrad;
    if (ksize_.size() != 4 || *std::min_element(ksize_.begin(), ksize_.end()) < 1) {
      c.SetError(errors::InvalidArgument("ksize must have 4 positive elements"));
      ksize_ = {1, 1, 1, 1};
    }
    if (attrs_.channels_first()) ChannelsLast(&ksize_);
  }
  bool supported() const { return ksize_[0] == 1 && ksize_[3] == 1; }

  int64_t ScratchBytes(const StreamCall& call, const Loops&) const override {
    const StatusOr<PoolParams> p = Plan(call);
    return p.ok() ? p->scratch_bytes() : 0;  // Run will say what is wrong
  }
  Status Run(const StreamCall& call, const Loops& loops, Queue queue) const override {
    MR_ASSIGN_OR_RETURN(PoolParams p, Plan(call));
    if (kind_ != PoolKind::kAverageGrad) p.in = call.inputs[0].raw_data();
    if (IsGradient()) p.gradient = call.inputs[GradientInput()].raw_data();
    p.out = call.outputs[0].raw_data();
    p.scratch = call.scratch.raw_data();
    return ToStatus(loops.Pool(queue, p));
  }

 private:
  bool IsGradient() const { return kind_ == PoolKind::kMaxGrad || kind_ == PoolKind::kAverageGrad; }
  int GradientInput() const { return kind_ == PoolKind::kMaxGrad ? 2 : 1; }

  // Sizes, without addresses.
  StatusOr<PoolParams> Plan(const StreamCall& call) const {
    const Tensor& out = call.outputs[0];
    const Shape& images = IsGradient() ? out.shape() : call.inputs[0].shape();
    if (images.rank() != 4) {
      return errors::InvalidArgument("tensor_in must be 4-dimensional: ", images.DebugString());
    }
    const bool first = attrs_.channels_first();
    const Shape last = first ? WithChannelsLast(images) : images;
    PoolParams p;
    p.kind = kind_;
    p.type = out.dtype();
    p.batch = last.dim(0);
    p.channels = last.dim(3);
    MR_ASSIGN_OR_RETURN(const WindowAxis rows, attrs_.Axis(1, last.dim(1), ksize_[1]));
    MR_ASSIGN_OR_RETURN(const WindowAxis cols, attrs_.Axis(2, last.dim(2), ksize_[2]));
    p.rows = ToParams(rows);
    p.cols = ToParams(cols);
    p.image = StridesOf(rows.input, cols.input, p.channels, first);
    p.pooled = StridesOf(rows.output, cols.output, p.channels, first);
    const Shape pooled_last{p.batch, rows.output, cols.output, p.channels};
    const Shape pooled = first ? WithChannelsFirst(pooled_last) : pooled_last;
    const Tensor& other = IsGradient() ? call.inputs[GradientInput()] : out;
    if (!(other.shape() == pooled)) {
      return errors::InvalidArgument("orig_output and grad must have shape ", pooled.DebugString(),
                                     ", got ", other.shape().DebugString());
    }
    if (kind_ == PoolKind::kMaxGrad && !(call.inputs[0].shape() == images)) {
      return errors::InvalidArgument("orig_input and the result must have the same shape");
    }
    return p;
  }

  const WindowAttrs attrs_;
  std::vector<int64_t> ksize_;
  PoolKind kind_{};
};

std::unique_ptr<Body> MakePool(KernelConstruction& c) {
  auto body = std::make_unique<PoolBody>(c);
  if (!body->supported()) return nullptr;  // windows over depth
  return body;
}

}  // namespace

void AddPoolBodies(std::vector<BodyDef>* bodies) {
  for (const char* op : {"MaxPool", "MaxPoolGrad", "AvgPool", "AvgPoolGrad"}) {
    bodies->push_back({op, {{"T", FloatTypes()}}, &MakePool});
  }
}

}  // namespace millrace::gpu
