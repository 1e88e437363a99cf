// SPDX-License-Identifier: Apache-2.0
// Pools over rows and columns.
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "kernels/gpu/body.h"
#include "kernels/gpu/products.h"
#include "kernels/nn/pool_plan.h"

namespace millrace::gpu {
namespace {

class PoolBody final : public Body {
 public:
  explicit PoolBody(KernelConstruction& c) : attrs_(c) {
    const std::string& op = c.def().name();
    kind_ = op == "MaxPool"       ? PoolKind::kMax
            : op == "MaxPoolGrad" ? PoolKind::kMaxGrad
            : op == "AvgPool"     ? PoolKind::kAverage
                                  : PoolKind::kAverageGrad;
  }
  bool supported() const { return !attrs_.over_depth(); }

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
    MR_ASSIGN_OR_RETURN(const PoolGeometry g, attrs_.Plan(images));
    MR_RETURN_IF_ERROR(CheckOthers(call, attrs_.OutputShape(g)));
    PoolParams p;
    p.kind = kind_;
    p.type = out.dtype();
    p.batch = g.batch;
    p.channels = g.channels;
    p.rows = ToParams(g.rows);
    p.cols = ToParams(g.cols);
    const bool first = attrs_.channels_first();
    p.image = StridesOf(g.rows.input, g.cols.input, g.channels, first);
    p.pooled = StridesOf(g.rows.output, g.cols.output, g.channels, first);
    return p;
  }

  // The shapes of all but the images, `pooled` being that of what is made of them.
  Status CheckOthers(const StreamCall& call, const Shape& pooled) const {
    if (!IsGradient()) return CheckRoom(pooled, call.outputs[0]);
    const Shape& gradient = call.inputs[GradientInput()].shape();
    if (kind_ == PoolKind::kAverageGrad) return CheckAvgPoolGrad(pooled, gradient);
    MR_RETURN_IF_ERROR(CheckMaxPoolGrad(pooled, call.inputs[1].shape(), gradient));
    return CheckRoom(call.inputs[0].shape(), call.outputs[0]);
  }

  const PoolAttrs attrs_;
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
