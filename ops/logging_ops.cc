// SPDX-License-Identifier: Apache-2.0
// Assertions and messages.
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"Assert", "condition: bool, data: T", "", "T: list(type) >= 1; summarize: int = 3", NoOutputs,
     kStateful},
    {"CheckNumericsV2", "tensor: T", "output: T",
     "T: {bfloat16, half, float, double}; message: string", UnchangedShape, kStateful},
    // Of a debugger that puts them between a tensor and its readers.
    {"Copy", "input: T", "output: T",
     "T: type; tensor_name: string = ''; debug_ops_spec: list(string) = []", UnchangedShape,
     kUninitializedInput},
    {"CopyHost", "input: T", "output: T",
     "T: type; tensor_name: string = ''; debug_ops_spec: list(string) = []", UnchangedShape,
     kUninitializedInput},
    {"Print", "input: T, data: U", "output: T",
     "T: type; U: list(type) >= 0; message: string = ''; first_n: int = -1; summarize: int = 3",
     UnchangedShape, kStateful},
    {"PrintV2", "input: string", "", "output_stream: string = 'stderr'; end: string = '\n'",
     NoOutputs, kStateful},
    {"Timestamp", "", "ts: double", "", ScalarShape, kStateful},
};

}  // namespace

Status RegisterLoggingOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
