// SPDX-License-Identifier: Apache-2.0
#include "jit/instruction_kernels.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/all_kernels.h"
#include "kernels/common/elementwise.h"

namespace millrace::jit {
namespace {

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
    RegisterReductionKernels(*r);
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

AttrMap AttrsOf(const FusedInstruction& in) {
  AttrMap attrs;
  if (FormOf(in.op) == FusedForm::kCast) {
    attrs.Set("SrcT", in.type);
    attrs.Set("DstT", in.result);
  } else {
    attrs.Set("T", in.type);
  }
  return attrs;
}

StatusOr<std::unique_ptr<Kernel>> MakeInstructionKernel(const FusedInstruction& in,
                                                        std::string_view node_name,
                                                        Device* device) {
  const AttrMap attrs = AttrsOf(in);
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
    loop.unary = unary->loop();
  } else if (const auto* binary = dynamic_cast<const BinaryKernel*>(kernel.get())) {
    loop.binary = binary->loop();
  } else {
    return errors::Unimplemented("no loop for ", NameOf(in.op));
  }
  return loop;
}

StatusOr<std::unique_ptr<Kernel>> MakeReductionKernel(std::string_view op, DataType type,
                                                      bool keep_dims, std::string_view node_name,
                                                      Device* device) {
  AttrMap attrs;
  attrs.Set("T", type);
  attrs.Set("Tidx", kInt64);
  attrs.Set("keep_dims", keep_dims);
  static const auto* const infos = new std::map<std::string, OpInfo, std::less<>>([] {
    std::map<std::string, OpInfo, std::less<>> made;
    for (const char* name : {"Sum", "Mean", "Max", "Min"}) made[name].def.set_name(name);
    return made;
  }());
  const auto info = infos->find(op);
  const KernelDef* const def =
      info == infos->end() ? nullptr : Registry().Find(info->first, "CPU", attrs);
  if (def == nullptr) return errors::NotFound("no kernel for ", op, " of ", DataTypeName(type));
  const DataType inputs[] = {type, kInt64};
  KernelConstruction construction(device, &info->second, node_name, &attrs, inputs, {&type, 1});
  std::unique_ptr<Kernel> kernel = def->factory(construction);
  MR_RETURN_IF_ERROR(construction.status());
  return kernel;
}

}  // namespace millrace::jit
