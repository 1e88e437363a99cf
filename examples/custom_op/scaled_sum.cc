// SPDX-License-Identifier: Apache-2.0
// A library of one op, ScaledSum: z = scale * (x + y). docs/custom_ops.md says how it is built.
#include <memory>

#include "millrace/custom_op.h"
#include "millrace/math.h"
#include "millrace/ops.h"
#include "millrace/status_macros.h"

namespace mr = millrace;

namespace {

template <typename T>
class ScaledSum final : public mr::CustomKernel {
 public:
  explicit ScaledSum(float scale) : scale_(static_cast<T>(scale)) {}

  mr::Status Compute(mr::CustomKernelContext& context) override {
    const mr::Tensor& x = context.input(0);
    const mr::Tensor& y = context.input(1);
    if (!(x.shape() == y.shape())) {
      return mr::Status(mr::StatusCode::kInvalidArgument,
                        "x is " + x.shape().DebugString() + " and y is " + y.shape().DebugString() +
                            ": both must have one shape");
    }
    MR_ASSIGN_OR_RETURN(mr::Tensor * z, context.AllocateOutput(0, x.shape()));
    const T* const a = x.data<T>();
    const T* const b = y.data<T>();
    T* const out = z->data<T>();
    context.ParallelFor(x.num_elements(), /*cost=*/1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = scale_ * (a[i] + b[i]);
    });
    return mr::OkStatus();
  }

 private:
  const T scale_;
};

mr::StatusOr<std::unique_ptr<mr::CustomKernel>> MakeScaledSum(const mr::NodeAttrs& attrs) {
  MR_ASSIGN_OR_RETURN(const float scale, attrs.Get<float>("scale"));
  MR_ASSIGN_OR_RETURN(const mr::DataType type, attrs.Get<mr::DataType>("T"));
  std::unique_ptr<mr::CustomKernel> kernel;
  if (type == mr::kFloat) {
    kernel = std::make_unique<ScaledSum<float>>(scale);
  } else {
    kernel = std::make_unique<ScaledSum<double>>(scale);
  }
  return kernel;
}

mr::Status ShapeOfScaledSum(mr::ShapeContext& context) {
  MR_ASSIGN_OR_RETURN(const mr::PartialShape both, context.input(0).MergeWith(context.input(1)));
  context.set_output(0, both);
  return mr::OkStatus();
}

mr::Status GradientOfScaledSum(mr::GradientContext& context) {
  const mr::AttrValue attr = context.op().attr("scale");
  const float* const scale = attr.get_if<float>();
  const mr::Output dx = mr::ops::Mul(
      context.scope(), context.dy(0),
      mr::ops::Cast(context.scope(), scale == nullptr ? 1.0f : *scale, context.dy(0).dtype()));
  context.set_dx(0, dx);
  context.set_dx(1, dx);
  return mr::OkStatus();
}

}  // namespace

MR_CUSTOM_OPS(ops) {
  ops.Add("ScaledSum")
      .Input("x: T")
      .Input("y: T")
      .Output("z: T")
      .Attr("scale: float = 1.0")
      .Attr("T: {float, double}")
      .Doc("z = scale * (x + y), both of one shape.")
      .Shape(ShapeOfScaledSum)
      .Kernel(MakeScaledSum)
      .Gradient(GradientOfScaledSum);
}
