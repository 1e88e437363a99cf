#include "ops/all_ops.h"
#include "ops/op_def_builder.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"ControlTrigger", "", "", ""},
    {"Enter", "data: T", "output: T",
     "T: type; frame_name: string; is_constant: bool = false; parallel_iterations: int = 10"},
    {"Exit", "data: T", "output: T", "T: type"},
    {"LoopCond", "input: bool", "output: bool", ""},
    {"Merge", "inputs: N * T", "output: T, value_index: int32", "T: type; N: int >= 1"},
    {"NextIteration", "data: T", "output: T", "T: type"},
    {"NoOp", "", "", ""},
    {"RefEnter", "data: Ref(T)", "output: Ref(T)",
     "T: type; frame_name: string; is_constant: bool = false; parallel_iterations: int = 10"},
    {"RefExit", "data: Ref(T)", "output: Ref(T)", "T: type"},
    {"RefIdentity", "input: Ref(T)", "output: Ref(T)", "T: type", nullptr, kUninitializedInput},
    {"RefMerge", "inputs: Ref(N * T)", "output: Ref(T), value_index: int32",
     "T: type; N: int >= 1"},
    {"RefNextIteration", "data: Ref(T)", "output: Ref(T)", "T: type"},
    {"RefSwitch", "data: Ref(T), pred: bool", "output_false: Ref(T), output_true: Ref(T)",
     "T: type", nullptr, kUninitializedInput},
    {"Switch", "data: T, pred: bool", "output_false: T, output_true: T", "T: type"},
};

}  // namespace

Status RegisterControlOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
