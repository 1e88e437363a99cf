// SPDX-License-Identifier: Apache-2.0
// Variables behind handles.
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"AssignAddVariableOp", "resource: resource, value: dtype", "", "dtype: type",
     AssignVariableShape, kStateful},
    {"AssignSubVariableOp", "resource: resource, value: dtype", "", "dtype: type",
     AssignVariableShape, kStateful},
    {"AssignVariableOp", "resource: resource, value: dtype", "",
     "dtype: type; validate_shape: bool = false", AssignVariableShape, kStateful},
    {"DestroyResourceOp", "resource: resource", "", "ignore_lookup_error: bool = true", NoOutputs,
     kStateful},
    {"DisableCopyOnRead", "resource: resource", "", "", NoOutputs, kStateful},
    {"ReadVariableOp", "resource: resource", "value: dtype", "dtype: type", ReadVariableShape,
     kStateful},
    {"ResourceGather", "resource: resource, indices: Tindices", "output: dtype",
     "batch_dims: int = 0; validate_indices: bool = true; dtype: type; Tindices: {int32, int64}",
     ResourceGatherShape, kStateful},
    {"ResourceScatterAdd", "resource: resource, indices: Tindices, updates: dtype", "",
     "dtype: numbers; Tindices: {int32, int64}", NoOutputs, kStateful},
    {"ResourceScatterDiv", "resource: resource, indices: Tindices, updates: dtype", "",
     "dtype: numbers; Tindices: {int32, int64}", NoOutputs, kStateful},
    {"ResourceScatterMax", "resource: resource, indices: Tindices, updates: dtype", "",
     "dtype: numbers; Tindices: {int32, int64}", NoOutputs, kStateful},
    {"ResourceScatterMin", "resource: resource, indices: Tindices, updates: dtype", "",
     "dtype: numbers; Tindices: {int32, int64}", NoOutputs, kStateful},
    {"ResourceScatterMul", "resource: resource, indices: Tindices, updates: dtype", "",
     "dtype: numbers; Tindices: {int32, int64}", NoOutputs, kStateful},
    {"ResourceScatterNdAdd", "ref: resource, indices: Tindices, updates: T", "",
     "T: type; Tindices: {int32, int64}; use_locking: bool = true; bad_indices_policy: string = ''",
     NoOutputs, kStateful},
    {"ResourceScatterNdMax", "ref: resource, indices: Tindices, updates: T", "",
     "T: type; Tindices: {int32, int64}; use_locking: bool = true; bad_indices_policy: string = ''",
     NoOutputs, kStateful},
    {"ResourceScatterNdMin", "ref: resource, indices: Tindices, updates: T", "",
     "T: type; Tindices: {int32, int64}; use_locking: bool = true; bad_indices_policy: string = ''",
     NoOutputs, kStateful},
    {"ResourceScatterNdSub", "ref: resource, indices: Tindices, updates: T", "",
     "T: type; Tindices: {int32, int64}; use_locking: bool = true; bad_indices_policy: string = ''",
     NoOutputs, kStateful},
    {"ResourceScatterNdUpdate", "ref: resource, indices: Tindices, updates: T", "",
     "T: type; Tindices: {int32, int64}; use_locking: bool = true; bad_indices_policy: string = ''",
     NoOutputs, kStateful},
    {"ResourceScatterSub", "resource: resource, indices: Tindices, updates: dtype", "",
     "dtype: numbers; Tindices: {int32, int64}", NoOutputs, kStateful},
    {"ResourceScatterUpdate", "resource: resource, indices: Tindices, updates: dtype", "",
     "dtype: type; Tindices: {int32, int64}", NoOutputs, kStateful},
    {"VarHandleOp", "", "resource: resource",
     "container: string = ''; shared_name: string = ''; debug_name: string = ''; dtype: type; "
     "shape: shape; allowed_devices: list(string) = []",
     VarHandleShape, kStateful},
    {"VarIsInitializedOp", "resource: resource", "is_initialized: bool", "", ScalarShape,
     kStateful},
    {"VariableShape", "input: resource", "output: out_type", "out_type: {int32, int64} = int32",
     VariableShapeShape, kStateful},
    {"ResourceCountUpTo", "resource: resource", "output: T", "limit: int; T: {int32, int64}",
     ScalarShape, kStateful},
    {"ResourceStridedSliceAssign",
     "ref: resource, begin: Index, end: Index, strides: Index, value: T", "",
     "T: type; Index: {int32, int64}; begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = "
     "0; new_axis_mask: int = 0; shrink_axis_mask: int = 0",
     NoOutputs, kStateful},
};

}  // namespace

Status RegisterResourceVariableOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
