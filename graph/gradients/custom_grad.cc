// SPDX-License-Identifier: Apache-2.0
// Gradients of the ops that loaded libraries define.
#include <optional>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/status_macros.h"
#include "graph/gradients/grad_families.h"
#include "graph/gradients/gradient_registry.h"
#include "ops/custom/custom_ops.h"

namespace millrace {
namespace {

// One node, as the library sees it.
class DerivativesOfNode final : public GradientContext {
 public:
  explicit DerivativesOfNode(GradContext& c) : c_(c) {}

  const Scope& scope() const override { return c_.scope(); }
  const Operation& op() const override { return c_.op(); }
  Output dy(int i) const override {
    return i >= 0 && i < c_.op().num_outputs() ? c_.dy(i) : Output();
  }
  void set_dx(int i, const Output& dx) override {
    if (i >= 0 && i < c_.op().num_inputs()) {
      c_.set_dx(i, dx);
    } else {
      wrong_ = i;
    }
  }
  // An input that was set and is not there.
  std::optional<int> wrong() const { return wrong_; }

 private:
  GradContext& c_;
  std::optional<int> wrong_;
};

Status CustomGrad(GradContext& c) {
  const CustomOp* const op = FindCustomOp(c.op().type());
  DerivativesOfNode context(c);
  MR_RETURN_IF_ERROR(Guarded([&] { return op->gradient(context); }));
  if (context.wrong().has_value()) {
    return errors::InvalidArgument("the gradient of ", op->name, " set input ", *context.wrong(),
                                   " of node '", c.op().name(), "', which has ",
                                   c.op().num_inputs());
  }
  return OkStatus();
}

}  // namespace

void RegisterCustomGradients(GradientRegistry& registry) {
  for (const CustomOp& op : CustomOpsOfProcess()) {
    if (op.gradient != nullptr) registry.Register(op.name, &CustomGrad);
  }
}

}  // namespace millrace
