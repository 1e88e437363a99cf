#include "ops/all_ops.h"
#include "ops/op_def_builder.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"Assign", "ref: Ref(T), value: T", "output_ref: Ref(T)",
     "T: type; validate_shape: bool = true; use_locking: bool = true", nullptr,
     kUninitializedInput},
    {"AssignAdd", "ref: Ref(T), value: T", "output_ref: Ref(T)",
     "T: numbers; use_locking: bool = false"},
    {"AssignSub", "ref: Ref(T), value: T", "output_ref: Ref(T)",
     "T: numbers; use_locking: bool = false"},
    {"IsVariableInitialized", "ref: Ref(dtype)", "is_initialized: bool", "dtype: type", nullptr,
     kUninitializedInput},
    {"ScatterAdd", "ref: Ref(T), indices: Tindices, updates: T", "output_ref: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false"},
    {"ScatterSub", "ref: Ref(T), indices: Tindices, updates: T", "output_ref: Ref(T)",
     "T: numbers; Tindices: {int32, int64}; use_locking: bool = false"},
    {"ScatterUpdate", "ref: Ref(T), indices: Tindices, updates: T", "output_ref: Ref(T)",
     "T: type; Tindices: {int32, int64}; use_locking: bool = true"},
    {"Variable", "", "ref: Ref(dtype)",
     "shape: shape; dtype: type; container: string = ''; shared_name: string = ''", nullptr,
     kStateful},
    {"VariableV2", "", "ref: Ref(dtype)",
     "shape: shape; dtype: type; container: string = ''; shared_name: string = ''", nullptr,
     kStateful},
};

}  // namespace

Status RegisterStateOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
