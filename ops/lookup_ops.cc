// SPDX-License-Identifier: Apache-2.0
// Tables from keys to values.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

constexpr OpSpec kOps[] = {
    {"AnonymousHashTable", "", "table_handle: resource", "key_dtype: type; value_dtype: type",
     ScalarShape, kStateful},
    {"AnonymousMutableHashTable", "", "table_handle: resource",
     "key_dtype: type; value_dtype: type", ScalarShape, kStateful},
    {"AnonymousMutableDenseHashTable", "empty_key: key_dtype, deleted_key: key_dtype",
     "table_handle: resource",
     "key_dtype: type; value_dtype: type; value_shape: shape = []; initial_num_buckets: int = "
     "131072; max_load_factor: float = 0.80000001",
     ScalarShape, kStateful},
    {"AnonymousMutableHashTableOfTensors", "", "table_handle: resource",
     "key_dtype: type; value_dtype: type; value_shape: shape = []", ScalarShape, kStateful},
    {"HashTable", "", "table_handle: Ref(string)",
     "container: string = ''; shared_name: string = ''; use_node_name_sharing: bool = false; "
     "key_dtype: type; value_dtype: type",
     HandleVectorShape, kStateful},
    {"HashTableV2", "", "table_handle: resource",
     "container: string = ''; shared_name: string = ''; use_node_name_sharing: bool = false; "
     "key_dtype: type; value_dtype: type",
     ScalarShape, kStateful},
    {"InitializeTable", "table_handle: Ref(string), keys: Tkey, values: Tval", "",
     "Tkey: type; Tval: type", NoOutputs},
    {"InitializeTableFromTextFile", "table_handle: Ref(string), filename: string", "",
     "key_index: int >= -2; value_index: int >= -2; vocab_size: int >= -1 = -1; delimiter: string "
     "= '\t'; offset: int = 0",
     NoOutputs},
    {"InitializeTableFromTextFileV2", "table_handle: resource, filename: string", "",
     "key_index: int >= -2; value_index: int >= -2; vocab_size: int >= -1 = -1; delimiter: string "
     "= '\t'; offset: int = 0",
     NoOutputs, kStateful},
    {"InitializeTableV2", "table_handle: resource, keys: Tkey, values: Tval", "",
     "Tkey: type; Tval: type", NoOutputs, kStateful},
    {"LookupTableExport", "table_handle: Ref(string)", "keys: Tkeys, values: Tvalues",
     "Tkeys: type; Tvalues: type", UnknownShape},
    {"LookupTableExportV2", "table_handle: resource", "keys: Tkeys, values: Tvalues",
     "Tkeys: type; Tvalues: type", UnknownShape, kStateful},
    {"LookupTableFind", "table_handle: Ref(string), keys: Tin, default_value: Tout", "values: Tout",
     "Tin: type; Tout: type", UnknownShape},
    {"LookupTableFindV2", "table_handle: resource, keys: Tin, default_value: Tout", "values: Tout",
     "Tin: type; Tout: type", UnknownShape, kStateful},
    {"LookupTableImport", "table_handle: Ref(string), keys: Tin, values: Tout", "",
     "Tin: type; Tout: type", NoOutputs},
    {"LookupTableImportV2", "table_handle: resource, keys: Tin, values: Tout", "",
     "Tin: type; Tout: type", NoOutputs, kStateful},
    {"LookupTableInsert", "table_handle: Ref(string), keys: Tin, values: Tout", "",
     "Tin: type; Tout: type", NoOutputs},
    {"LookupTableInsertV2", "table_handle: resource, keys: Tin, values: Tout", "",
     "Tin: type; Tout: type", NoOutputs, kStateful},
    {"LookupTableRemoveV2", "table_handle: resource, keys: Tin", "", "Tin: type", NoOutputs,
     kStateful},
    {"LookupTableSize", "table_handle: Ref(string)", "size: int64", "", ScalarShape},
    {"LookupTableSizeV2", "table_handle: resource", "size: int64", "", ScalarShape, kStateful},
    {"MutableDenseHashTable", "empty_key: key_dtype", "table_handle: Ref(string)",
     "container: string = ''; shared_name: string = ''; use_node_name_sharing: bool = false; "
     "key_dtype: type; value_dtype: type; value_shape: shape = []; initial_num_buckets: int = "
     "131072; max_load_factor: float = 0.80000001",
     HandleVectorShape, kStateful},
    {"MutableDenseHashTableV2", "empty_key: key_dtype, deleted_key: key_dtype",
     "table_handle: resource",
     "container: string = ''; shared_name: string = ''; use_node_name_sharing: bool = false; "
     "key_dtype: type; value_dtype: type; value_shape: shape = []; initial_num_buckets: int = "
     "131072; max_load_factor: float = 0.80000001",
     ScalarShape, kStateful},
    {"MutableHashTable", "", "table_handle: Ref(string)",
     "container: string = ''; shared_name: string = ''; use_node_name_sharing: bool = false; "
     "key_dtype: type; value_dtype: type",
     HandleVectorShape, kStateful},
    {"MutableHashTableOfTensors", "", "table_handle: Ref(string)",
     "container: string = ''; shared_name: string = ''; use_node_name_sharing: bool = false; "
     "key_dtype: type; value_dtype: type; value_shape: shape = []",
     HandleVectorShape, kStateful},
    {"MutableHashTableOfTensorsV2", "", "table_handle: resource",
     "container: string = ''; shared_name: string = ''; use_node_name_sharing: bool = false; "
     "key_dtype: type; value_dtype: type; value_shape: shape = []",
     ScalarShape, kStateful},
    {"MutableHashTableV2", "", "table_handle: resource",
     "container: string = ''; shared_name: string = ''; use_node_name_sharing: bool = false; "
     "key_dtype: type; value_dtype: type",
     ScalarShape, kStateful},
};

}  // namespace

Status RegisterLookupOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
