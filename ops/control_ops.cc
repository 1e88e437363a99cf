// SPDX-License-Identifier: Apache-2.0
// Branches and loops.
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// What the inputs to choose from have in common.
Status RefSelectShape(InferenceContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (c.input(i).IsFullyDefined() && c.input(i) == c.input(1)) continue;
    return UnknownShape(c);
  }
  c.set_output(0, c.input(1));
  return OkStatus();
}

constexpr OpSpec kOps[] = {
    {"ControlTrigger", "", "", "", NoOutputs},
    {"Enter", "data: T", "output: T",
     "T: type; frame_name: string; is_constant: bool = false; parallel_iterations: int = 10",
     UnchangedShape},
    {"Exit", "data: T", "output: T", "T: type", UnchangedShape},
    {"LoopCond", "input: bool", "output: bool", "", UnchangedShape},
    {"Merge", "inputs: N * T", "output: T, value_index: int32", "T: type; N: int >= 1", MergeShape},
    {"NextIteration", "data: T", "output: T", "T: type", UnchangedShape},
    {"NoOp", "", "", "", NoOutputs},
    {"RefEnter", "data: Ref(T)", "output: Ref(T)",
     "T: type; frame_name: string; is_constant: bool = false; parallel_iterations: int = 10",
     UnchangedShape},
    {"RefExit", "data: Ref(T)", "output: Ref(T)", "T: type", UnchangedShape},
    {"RefIdentity", "input: Ref(T)", "output: Ref(T)", "T: type", UnchangedShape,
     kUninitializedInput},
    {"RefMerge", "inputs: Ref(N * T)", "output: Ref(T), value_index: int32", "T: type; N: int >= 1",
     MergeShape},
    {"RefNextIteration", "data: Ref(T)", "output: Ref(T)", "T: type", UnchangedShape},
    {"RefSelect", "index: int32, inputs: Ref(N * T)", "output: Ref(T)", "T: type; N: int >= 1",
     RefSelectShape},
    {"RefSwitch", "data: Ref(T), pred: bool", "output_false: Ref(T), output_true: Ref(T)",
     "T: type", SwitchShape, kUninitializedInput},
    {"Switch", "data: T, pred: bool", "output_false: T, output_true: T", "T: type", SwitchShape},
};

}  // namespace

Status RegisterControlOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
