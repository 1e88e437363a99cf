// SPDX-License-Identifier: Apache-2.0
// Reference variables.
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"Assign", "ref: Ref(T), value: T", "output_ref: Ref(T)",
     "T: type; validate_shape: bool = true; use_locking: bool = true", AssignShape,
     kUninitializedInput},
    {"AssignAdd", "ref: Ref(T), value: T", "output_ref: Ref(T)",
     "T: numbers; use_locking: bool = false", MergeOfFirstTwo},
    {"AssignSub", "ref: Ref(T), value: T", "output_ref: Ref(T)",
     "T: numbers; use_locking: bool = false", MergeOfFirstTwo},
    {"IsVariableInitialized", "ref: Ref(dtype)", "is_initialized: bool", "dtype: type", ScalarShape,
     kUninitializedInput},
    {"ScatterAdd", "ref: Ref(T), indices: Tindices, updates: T", "output_ref: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false", UnchangedShape},
    {"ScatterDiv", "ref: Ref(T), indices: Tindices, updates: T", "output_ref: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false", UnchangedShape},
    {"ScatterMax", "ref: Ref(T), indices: Tindices, updates: T", "output_ref: Ref(T)",
     "T: {half, bfloat16, float, double, int32, int64}; Tindices: {int32, int64}; use_locking: "
     "bool = false",
     UnchangedShape},
    {"ScatterMin", "ref: Ref(T), indices: Tindices, updates: T", "output_ref: Ref(T)",
     "T: {half, bfloat16, float, double, int32, int64}; Tindices: {int32, int64}; use_locking: "
     "bool = false",
     UnchangedShape},
    {"ScatterMul", "ref: Ref(T), indices: Tindices, updates: T", "output_ref: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false", UnchangedShape},
    {"ScatterNdAdd", "ref: Ref(T), indices: Tindices, updates: T", "output_ref: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false; bad_indices_policy: string "
     "= ''",
     UnchangedShape},
    {"ScatterNdMax", "ref: Ref(T), indices: Tindices, updates: T", "output_ref: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false; bad_indices_policy: string "
     "= ''",
     UnchangedShape},
    {"ScatterNdMin", "ref: Ref(T), indices: Tindices, updates: T", "output_ref: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false; bad_indices_policy: string "
     "= ''",
     UnchangedShape},
    {"ScatterNdSub", "ref: Ref(T), indices: Tindices, updates: T", "output_ref: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false; bad_indices_policy: string "
     "= ''",
     UnchangedShape},
    {"ScatterNdUpdate", "ref: Ref(T), indices: Tindices, updates: T", "output_ref: Ref(T)",
     "T: type; Tindices: {int32, int64}; use_locking: bool = true; bad_indices_policy: string = ''",
     UnchangedShape},
    {"ScatterSub", "ref: Ref(T), indices: Tindices, updates: T", "output_ref: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false", UnchangedShape},
    {"ScatterUpdate", "ref: Ref(T), indices: Tindices, updates: T", "output_ref: Ref(T)",
     "T: type; Tindices: {int32, int64}; use_locking: bool = true", UnchangedShape},
    {"DestroyTemporaryVariable", "ref: Ref(T)", "value: T", "T: type; var_name: string",
     UnchangedShape},
    {"TemporaryVariable", "", "ref: Ref(dtype)", "shape: shape; dtype: type; var_name: string = ''",
     ShapeFromAttr, kStateful},
    {"Variable", "", "ref: Ref(dtype)",
     "shape: shape; dtype: type; container: string = ''; shared_name: string = ''", UnknownShape,
     kStateful},
    {"VariableV2", "", "ref: Ref(dtype)",
     "shape: shape; dtype: type; container: string = ''; shared_name: string = ''", ShapeFromAttr,
     kStateful},
    {"CountUpTo", "ref: Ref(T)", "output: T", "limit: int; T: {int32, int64}", ScalarShape},
    {"StridedSliceAssign", "ref: Ref(T), begin: Index, end: Index, strides: Index, value: T",
     "output_ref: Ref(T)",
     "T: type; Index: {int32, int64}; begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = "
     "0; new_axis_mask: int = 0; shrink_axis_mask: int = 0",
     UnchangedShape},
};

}  // namespace

Status RegisterStateOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
