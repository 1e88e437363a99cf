// Assertions and messages.
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"Assert", "condition: bool, data: T", "", "T: list(type) >= 1; summarize: int = 3", NoOutputs,
     kStateful},
    {"Print", "input: T, data: U", "output: T",
     "T: type; U: list(type) >= 0; message: string = ''; first_n: int = -1; summarize: int = 3",
     UnchangedShape, kStateful},
    {"PrintV2", "input: string", "", "output_stream: string = 'stderr'; end: string = '\n'",
     NoOutputs, kStateful},
};

}  // namespace

Status RegisterLoggingOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
