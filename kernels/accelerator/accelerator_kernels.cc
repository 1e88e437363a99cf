// SPDX-License-Identifier: Apache-2.0
#include "kernels/accelerator/accelerator_kernels.h"

#include <string_view>
#include <utility>

#include "base/errors.h"
#include "kernels/accelerator/assign_variable.h"
#include "kernels/accelerator/collectives.h"
#include "kernels/accelerator/reference_variable.h"
#include "kernels/accelerator/transfer.h"
#include "kernels/common/kernel_errors.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

// As that of the CPU, with the index in host memory.
class MergeKernel final : public Kernel {
 public:
  using Kernel::Kernel;
  bool IsExpensive() const override { return false; }
  Status Compute(KernelContext& ctx) override {
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      if (!ctx.has_input(i)) continue;
      if (ctx.input_is_ref(i)) {
        ctx.ForwardRef(i, 0);
      } else {
        ctx.SetOutput(0, ctx.input(i));
      }
      ctx.SetOutput(1, Tensor::Scalar<int32_t>(i));
      return OkStatus();
    }
    return NoLiveInput();
  }
};

// Values that are handed on live in host memory if programs use them to steer, as in
// TensorFlow: int32, bool, and what a device cannot hold.
bool IsHostType(DataType type) { return type == kInt32 || type == kBool || !IsMemcpyable(type); }

std::vector<DataType> TypesWhere(bool host) {
  std::vector<DataType> types;
  for (int i = 1; i < 64; ++i) {
    const auto type = static_cast<DataType>(i);
    if (DataTypeSize(type) > 0 && !IsRefType(type) && IsHostType(type) == host) {
      types.push_back(type);
    }
  }
  return types;
}

struct Row {
  std::string_view op;
  std::vector<std::string> host_args;
};

// Hand their input on, whatever it is.
const std::vector<Row>& PassOns() {
  static const auto* const rows = new std::vector<Row>{
      {"Identity", {}},
      {"StopGradient", {}},
      {"PreventGradient", {}},
      {"PlaceholderWithDefault", {}},
      {"Snapshot", {}},
      {"Enter", {}},
      {"Exit", {}},
      {"NextIteration", {}},
      {"Switch", {"pred"}},
      {"Placeholder", {}},
      {"RefIdentity", {}},
      {"RefEnter", {}},
      {"RefExit", {}},
      {"RefNextIteration", {}},
      {"RefSwitch", {"pred"}},
  };
  return *rows;
}

// Change the shape, or look at nothing but shapes.
const std::vector<Row>& ShapeOnly() {
  static const auto* const rows = new std::vector<Row>{
      {"Reshape", {"shape"}},
      {"ExpandDims", {"dim"}},
      {"Squeeze", {}},
      {"EnsureShape", {}},
      {"Bitcast", {}},
      {"IdentityN", {}},
      {"Shape", {"output"}},
      {"ShapeN", {"output"}},
      {"Size", {"output"}},
      {"Rank", {"output"}},
      {"VarHandleOp", {"resource"}},
      {"ReadVariableOp", {"resource"}},
      {"VarIsInitializedOp", {"resource", "is_initialized"}},
      {"VariableShape", {"input", "output"}},
      {"DestroyResourceOp", {"resource"}},
      {"NoOp", {}},
      {"ControlTrigger", {}},
      {"LoopCond", {"input", "output"}},
  };
  return *rows;
}

// Work on shapes and indices: all in host memory, whatever the type.
constexpr std::string_view kHostOnly[] = {"Range",         "BroadcastGradientArgs",
                                          "BroadcastArgs", "InvertPermutation",
                                          "ConcatOffset",  "Assert"};

// Arithmetic that is done in host memory for int32, attribute T.
constexpr std::string_view kHostInt32[] = {
    "Add",      "AddV2",   "Sub",          "Mul",       "FloorDiv", "FloorMod",     "Mod",
    "Maximum",  "Minimum", "Less",         "LessEqual", "Greater",  "GreaterEqual", "Equal",
    "NotEqual", "Neg",     "Sum",          "Prod",      "Max",      "Min",          "Pack",
    "Unpack",   "Slice",   "StridedSlice", "ConcatV2",  "Split",    "SplitV",       "Tile"};

}  // namespace

void RegisterAcceleratorKernels(const OpRegistry& ops, const CpuKernels& cpu,
                                const std::string& device_type, KernelRegistry& registry) {
  RegisterAcceleratorTransfers(device_type, registry);
  RegisterAcceleratorCollectives(ops, cpu, device_type, nullptr, registry);
  const auto adopt = [&](std::string_view op, Adoption adoption) {
    adoption.device_type = device_type;
    Adopt(ops, cpu, std::string(op), adoption, registry);
  };
  for (const Row& row : PassOns()) {
    adopt(row.op, {"", &MakeHostRunKernel, row.host_args, TypesWhere(false), ""});
    adopt(row.op, {"", &MakeHostRunKernel, {"*"}, TypesWhere(true), ""});
  }
  for (const Row& row : ShapeOnly()) {
    adopt(row.op, {"", &MakeHostRunKernel, row.host_args, {}, ""});
  }
  for (const std::string_view op : kHostOnly) adopt(op, {"", &MakeHostRunKernel, {"*"}, {}, ""});
  for (const std::string_view op : kHostInt32) {
    adopt(op, {"", &MakeHostRunKernel, {"*"}, {kInt32}, "T"});
  }
  for (const char* op : {"Merge", "RefMerge"}) {
    adopt(op, {"", &MakeKernel<MergeKernel>, {"value_index"}, TypesWhere(false), "T"});
    adopt(op, {"", &MakeKernel<MergeKernel>, {"*"}, TypesWhere(true), "T"});
  }
  adopt("Const", {"", &MakeAcceleratorConst, {}, TypesWhere(false), "dtype"});
  adopt("Const", {"", &MakeHostRunKernel, {"*"}, TypesWhere(true), "dtype"});
  adopt("AssignVariableOp", {"", &MakeAcceleratorAssign, {"resource"}, DeviceTypes(), "dtype"});
  // Counters of steps, which are int64, stay on the host: a step that holds a variable by reference
  // is not recorded.
  const std::vector<DataType> floats = {kFloat, kDouble, kHalf, kBfloat16};
  for (const char* op : {"Variable", "VariableV2"}) {
    adopt(op, {"", &MakeAcceleratorVariable, {}, floats, "dtype"});
  }
  adopt("Assign", {"", &MakeAcceleratorReferenceAssign, {}, floats, "T"});
  adopt("IsVariableInitialized", {"", &MakeHostRunKernel, {"is_initialized"}, floats, "dtype"});
}

}  // namespace millrace
