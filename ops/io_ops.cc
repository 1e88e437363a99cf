// SPDX-License-Identifier: Apache-2.0
// Checkpoints.
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"MergeV2Checkpoints", "checkpoint_prefixes: string, destination_prefix: string", "",
     "delete_old_dirs: bool = true; allow_missing_files: bool = false", NoOutputs, kStateful},
    {"Restore", "file_pattern: string, tensor_name: string", "tensor: dt",
     "dt: type; preferred_shard: int = -1", UnknownShape, kStateful},
    {"RestoreSlice", "file_pattern: string, tensor_name: string, shape_and_slice: string",
     "tensor: dt", "dt: type; preferred_shard: int = -1", UnknownShape, kStateful},
    {"RestoreV2", "prefix: string, tensor_names: string, shape_and_slices: string",
     "tensors: dtypes", "dtypes: list(type) >= 1", UnknownShape, kStateful},
    {"Save", "filename: string, tensor_names: string, data: T", "", "T: list(type) >= 1", NoOutputs,
     kStateful},
    {"SaveSlices", "filename: string, tensor_names: string, shapes_and_slices: string, data: T", "",
     "T: list(type) >= 1", NoOutputs, kStateful},
    {"SaveV2", "prefix: string, tensor_names: string, shape_and_slices: string, tensors: dtypes",
     "", "dtypes: list(type) >= 1", NoOutputs, kStateful},
    {"ShardedFilename", "basename: string, shard: int32, num_shards: int32", "filename: string", "",
     ScalarShape},
    {"ShardedFilespec", "basename: string, num_shards: int32", "filename: string", "", ScalarShape},
};

}  // namespace

Status RegisterIoOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
