// SPDX-License-Identifier: Apache-2.0
// Libraries that are wrong in one way each: -DWRONG=<number>.
#include <cstdint>
#include <memory>
#include <stdexcept>

#include "millrace/custom_op.h"

namespace mr = millrace;

namespace {

// Computes what WRONG says.
class Wrong final : public mr::CustomKernel {
 public:
  mr::Status Compute(mr::CustomKernelContext& context) override {
#if WRONG == 10  // sets nothing
    return mr::OkStatus();
#elif WRONG == 11  // another type
    return context.SetOutput(0, mr::Tensor::Scalar<int32_t>(1));
#elif WRONG == 12  // outputs and inputs that it does not have
    if (context.input(99).IsInitialized()) return mr::OkStatus();
    return context.AllocateOutput(99, {1}).status();
#elif WRONG == 13  // throws
    throw std::runtime_error("thrown by a library");
#elif WRONG == 14  // a shape that cannot be
    return context.AllocateOutput(0, mr::Shape{-1, 3}).status();
#elif WRONG == 15  // the wrong C++ type
    return mr::Status(mr::StatusCode::kInternal,
                      std::to_string(context.input(0).data<double>()[0]));
#else
    return context.SetOutput(0, context.input(0));
#endif
  }
};

mr::StatusOr<std::unique_ptr<mr::CustomKernel>> Make(const mr::NodeAttrs& attrs) {
#if WRONG == 16
  return mr::Status(mr::StatusCode::kInvalidArgument, "no kernel today");
#elif WRONG == 17
  return std::unique_ptr<mr::CustomKernel>();
#elif WRONG == 18
  return attrs.Get<float>("missing").status();
#else
  return std::make_unique<Wrong>();
#endif
}

}  // namespace

#if WRONG == 1  // a version of long ago
extern "C" const char* millrace_custom_op_abi() { return "millrace 0.1 ops 0"; }
extern "C" void millrace_custom_ops(mr::CustomOps&) {}
#elif WRONG == 2  // no library of ops
#else
MR_CUSTOM_OPS(ops) {
#if WRONG == 3
  throw std::runtime_error("thrown by a library");
#elif WRONG == 4
  ops.Add("MatMul").Input("x: float").Output("y: float");
#elif WRONG == 5
  ops.Add("Strange").Input("x float");
#elif WRONG == 6
  ops.Add("_Hidden").Output("y: float");
#elif WRONG == 7
  ops.Add("TakesVariable").Input("x: Ref(float)");
#elif WRONG == 8
  ops.Add("Twice").Output("y: float");
  ops.Add("Twice").Output("y: float");
#elif WRONG == 9
#else
  ops.Add("ScaledSum")
      .Input("x: float")
      .Input("y: float")
      .Output("z: float")
      .Attr("scale: float = 1.0")
      .Kernel(Make)
#if WRONG == 19
      .Shape([](mr::ShapeContext& context) -> mr::Status {
        context.set_output(99, context.input(99));
        throw std::runtime_error("thrown by a shape function");
      })
#endif
#if WRONG == 20
      .Gradient([](mr::GradientContext& context) {
        context.set_dx(99, context.dy(99));
        return mr::OkStatus();
      });
#else
      .Gradient([](mr::GradientContext& context) {
        context.set_dx(0, context.dy(0));
        return mr::OkStatus();
      });
#endif
#endif
}
#endif
