// Random numbers.
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"RandomShuffle", "value: T", "output: T", "seed: int = 0; seed2: int = 0; T: type",
     UnchangedShape, kStateful},
    {"RandomStandardNormal", "shape: T", "output: dtype",
     "seed: int = 0; seed2: int = 0; dtype: floats; T: {int32, int64}", ShapeFromInput0, kStateful},
    {"RandomUniform", "shape: T", "output: dtype",
     "seed: int = 0; seed2: int = 0; dtype: floats; T: {int32, int64}", ShapeFromInput0, kStateful},
    {"RandomUniformInt", "shape: T, minval: Tout, maxval: Tout", "output: Tout",
     "seed: int = 0; seed2: int = 0; Tout: {int32, int64}; T: {int32, int64}", ShapeFromInput0,
     kStateful},
    {"TruncatedNormal", "shape: T", "output: dtype",
     "seed: int = 0; seed2: int = 0; dtype: floats; T: {int32, int64}", ShapeFromInput0, kStateful},
};

}  // namespace

Status RegisterRandomOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
