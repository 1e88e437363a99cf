#include "ops/all_ops.h"
#include "ops/op_def_builder.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"MergeV2Checkpoints", "checkpoint_prefixes: string, destination_prefix: string", "",
     "delete_old_dirs: bool = true; allow_missing_files: bool = false", nullptr, kStateful},
    {"RestoreV2", "prefix: string, tensor_names: string, shape_and_slices: string",
     "tensors: dtypes", "dtypes: list(type) >= 1", nullptr, kStateful},
    {"SaveV2", "prefix: string, tensor_names: string, shape_and_slices: string, tensors: dtypes",
     "", "dtypes: list(type) >= 1", nullptr, kStateful},
    {"ShardedFilename", "basename: string, shard: int32, num_shards: int32", "filename: string",
     ""},
};

}  // namespace

Status RegisterIoOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
