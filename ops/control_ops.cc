// Branches and loops.
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

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
    {"RefSwitch", "data: Ref(T), pred: bool", "output_false: Ref(T), output_true: Ref(T)",
     "T: type", SwitchShape, kUninitializedInput},
    {"Switch", "data: T, pred: bool", "output_false: T, output_true: T", "T: type", SwitchShape},
};

}  // namespace

Status RegisterControlOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
