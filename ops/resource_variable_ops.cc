#include "ops/all_ops.h"
#include "ops/op_def_builder.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"AssignAddVariableOp", "resource: resource, value: dtype", "", "dtype: type", nullptr,
     kStateful},
    {"AssignSubVariableOp", "resource: resource, value: dtype", "", "dtype: type", nullptr,
     kStateful},
    {"AssignVariableOp", "resource: resource, value: dtype", "",
     "dtype: type; validate_shape: bool = false", nullptr, kStateful},
    {"DestroyResourceOp", "resource: resource", "", "ignore_lookup_error: bool = true", nullptr,
     kStateful},
    {"ReadVariableOp", "resource: resource", "value: dtype", "dtype: type", nullptr, kStateful},
    {"ResourceGather", "resource: resource, indices: Tindices", "output: dtype",
     "batch_dims: int = 0; validate_indices: bool = true; dtype: type; Tindices: {int32, int64}",
     nullptr, kStateful},
    {"ResourceScatterAdd", "resource: resource, indices: Tindices, updates: dtype", "",
     "dtype: numbers; Tindices: {int32, int64}", nullptr, kStateful},
    {"ResourceScatterSub", "resource: resource, indices: Tindices, updates: dtype", "",
     "dtype: numbers; Tindices: {int32, int64}", nullptr, kStateful},
    {"ResourceScatterUpdate", "resource: resource, indices: Tindices, updates: dtype", "",
     "dtype: type; Tindices: {int32, int64}", nullptr, kStateful},
    {"VarHandleOp", "", "resource: resource",
     "container: string = ''; shared_name: string = ''; debug_name: string = ''; dtype: type; "
     "shape: shape; allowed_devices: list(string) = []",
     nullptr, kStateful},
    {"VarIsInitializedOp", "resource: resource", "is_initialized: bool", "", nullptr, kStateful},
    {"VariableShape", "input: resource", "output: out_type", "out_type: {int32, int64} = int32",
     nullptr, kStateful},
};

}  // namespace

Status RegisterResourceVariableOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
