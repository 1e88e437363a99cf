#include "jit/instruction_kernels.h"

#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/elementwise.h"

namespace millrace::jit {
namespace {

// Elementwise kernels hand out their loops to nobody else; naming a private member as the argument
// of an explicit instantiation is allowed, and leaves a header alone that all kernels include.
UnaryLoopFn LoopOf(const UnaryKernel& kernel);
BinaryLoopFn LoopOf(const BinaryKernel& kernel);
template <typename K, typename Loop, const Loop K::* member>
struct OpenLoop {
  friend Loop LoopOf(const K& kernel) { return kernel.*member; }
};
template struct OpenLoop<UnaryKernel, UnaryLoopFn, &UnaryKernel::loop_>;
template struct OpenLoop<BinaryKernel, BinaryLoopFn, &BinaryKernel::loop_>;

const KernelRegistry& Registry() {
  static const KernelRegistry* const registry = [] {
    auto* r = new KernelRegistry;
    RegisterElementwiseUnaryKernels(*r);
    RegisterElementwiseFunctionKernels(*r);
    RegisterElementwiseBinaryKernels(*r);
    RegisterElementwiseDivisionKernels(*r);
    RegisterElementwiseCompareKernels(*r);
    RegisterCastKernels(*r);
    RegisterAddNKernels(*r);
    RegisterSelectKernels(*r);
    RegisterBiasKernels(*r);
    RegisterActivationKernels(*r);
    return r;
  }();
  return *registry;
}

// Kernels ask no more of an op than its name.
const OpInfo* InfoOf(FusedOp op) {
  static const std::vector<OpInfo>* const infos = [] {
    auto* made = new std::vector<OpInfo>(kNumFusedOps);
    for (int32_t i = 0; i < kNumFusedOps; ++i) {
      (*made)[i].def.set_name(NameOf(static_cast<FusedOp>(i)));
    }
    return made;
  }();
  return &(*infos)[static_cast<int32_t>(op)];
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> MakeInstructionKernel(const FusedInstruction& in,
                                                        std::string_view node_name,
                                                        Device* device) {
  AttrMap attrs;
  if (FormOf(in.op) == FusedForm::kCast) {
    attrs.Set("SrcT", in.type);
    attrs.Set("DstT", in.result);
  } else {
    attrs.Set("T", in.type);
  }
  std::vector<DataType> inputs;
  for (std::size_t i = 0; i < in.args.size(); ++i) {
    inputs.push_back(OperandType(in, static_cast<int>(i)));
  }
  const OpInfo* const info = InfoOf(in.op);
  const KernelDef* const def = Registry().Find(info->def.name(), "CPU", attrs);
  if (def == nullptr) {
    return errors::NotFound("no kernel for ", info->def.name(), " of ", DataTypeName(in.type));
  }
  KernelConstruction construction(device, info, node_name, &attrs, inputs, {&in.result, 1});
  std::unique_ptr<Kernel> kernel = def->factory(construction);
  MR_RETURN_IF_ERROR(construction.status());
  return kernel;
}

StatusOr<InstructionLoop> FindKernelLoop(const FusedInstruction& in) {
  FusedInstruction like = in;
  // One sum after the other, as the kernels of AddN and BiasAdd do it.
  if (FormOf(in.op) == FusedForm::kSum || FormOf(in.op) == FusedForm::kBias) {
    like = {.op = FusedOp::kAddV2, .type = in.type, .result = in.result, .args = {0, 0}};
  }
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel,
                      MakeInstructionKernel(like, "", nullptr));
  InstructionLoop loop;
  if (const auto* unary = dynamic_cast<const UnaryKernel*>(kernel.get())) {
    loop.unary = LoopOf(*unary);
  } else if (const auto* binary = dynamic_cast<const BinaryKernel*>(kernel.get())) {
    loop.binary = LoopOf(*binary);
  } else {
    return errors::Unimplemented("no loop for ", NameOf(in.op));
  }
  return loop;
}

}  // namespace millrace::jit
