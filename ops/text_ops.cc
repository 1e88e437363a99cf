// SPDX-License-Identifier: Apache-2.0
// Text and bytes: splitting, matching, hashing, parsing; whole files.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

// The indices, values and shape of a sparse matrix of strings.
Status SplitToSparseShape(InferenceContext& c) {
  c.set_output(0, PartialShape({-1, 2}));
  c.set_output(1, UnknownDims(1));
  c.set_output(2, PartialShape({2}));
  return OkStatus();
}

// One position for all, or one for each.
Status SubstrShape(InferenceContext& c) {
  if (c.input(1).has_rank() && c.input(1).rank() == 0) return UnchangedShape(c);
  return BroadcastShape(c);
}

Status VectorShape(InferenceContext& c) {
  c.set_output(0, UnknownDims(1));
  return OkStatus();
}

Status CsvShape(InferenceContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.input(0));
  return OkStatus();
}

constexpr OpSpec kOps[] = {
    {"DecodeBase64", "input: string", "output: string", "", UnchangedShape},
    {"DecodeCSV", "records: string, record_defaults: OUT_TYPE", "output: OUT_TYPE",
     "OUT_TYPE: list({float, double, int32, int64, string}) >= 1; field_delim: string = ','; "
     "use_quote_delim: bool = true; na_value: string = ''; select_cols: list(int) = []",
     CsvShape},
    {"DecodeCompressed", "bytes: string", "output: string", "compression_type: string = ''",
     UnchangedShape},
    {"DecodeJSONExample", "json_examples: string", "binary_examples: string", "", UnchangedShape},
    {"DecodePaddedRaw", "input_bytes: string, fixed_length: int32", "output: out_type",
     "out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, bfloat16}; "
     "little_endian: bool = true",
     UnknownShape},
    {"DecodeRaw", "bytes: string", "output: out_type",
     "out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, complex64, "
     "complex128, bool, bfloat16}; little_endian: bool = true",
     UnknownShape},
    {"EncodeBase64", "input: string", "output: string", "pad: bool = false", UnchangedShape},
    {"MatchingFiles", "pattern: string", "filenames: string", "", VectorShape},
    {"ParseExample",
     "serialized: string, names: string, sparse_keys: Nsparse * string, dense_keys: Ndense * "
     "string, dense_defaults: Tdense",
     "sparse_indices: Nsparse * int64, sparse_values: sparse_types, sparse_shapes: Nsparse * "
     "int64, dense_values: Tdense",
     "Nsparse: int >= 0; Ndense: int >= 0; sparse_types: list({float, int64, string}) >= 0; "
     "Tdense: list({float, int64, string}) >= 0; dense_shapes: list(shape) >= 0",
     UnknownShape},
    {"ParseExampleV2",
     "serialized: string, names: string, sparse_keys: string, dense_keys: string, ragged_keys: "
     "string, dense_defaults: Tdense",
     "sparse_indices: num_sparse * int64, sparse_values: sparse_types, sparse_shapes: num_sparse * "
     "int64, dense_values: Tdense, ragged_values: ragged_value_types, ragged_row_splits: "
     "ragged_split_types",
     "Tdense: list({float, int64, string}) >= 0; num_sparse: int >= 0; sparse_types: list({float, "
     "int64, string}) >= 0; ragged_value_types: list({float, int64, string}) >= 0; "
     "ragged_split_types: list({int32, int64}) >= 0; dense_shapes: list(shape) >= 0",
     UnknownShape},
    {"ParseSequenceExample",
     "serialized: string, debug_name: string, context_dense_defaults: Tcontext_dense",
     "context_sparse_indices: Ncontext_sparse * int64, context_sparse_values: "
     "context_sparse_types, context_sparse_shapes: Ncontext_sparse * int64, context_dense_values: "
     "Tcontext_dense, feature_list_sparse_indices: Nfeature_list_sparse * int64, "
     "feature_list_sparse_values: feature_list_sparse_types, feature_list_sparse_shapes: "
     "Nfeature_list_sparse * int64, feature_list_dense_values: feature_list_dense_types, "
     "feature_list_dense_lengths: Nfeature_list_dense * int64",
     "feature_list_dense_missing_assumed_empty: list(string) >= 0; context_sparse_keys: "
     "list(string) >= 0; context_dense_keys: list(string) >= 0; feature_list_sparse_keys: "
     "list(string) >= 0; feature_list_dense_keys: list(string) >= 0; Ncontext_sparse: int >= 0 = "
     "0; Ncontext_dense: int >= 0 = 0; Nfeature_list_sparse: int >= 0 = 0; Nfeature_list_dense: "
     "int >= 0 = 0; context_sparse_types: list({float, int64, string}) >= 0 = []; Tcontext_dense: "
     "list({float, int64, string}) >= 0 = []; feature_list_dense_types: list({float, int64, "
     "string}) >= 0 = []; context_dense_shapes: list(shape) >= 0 = []; feature_list_sparse_types: "
     "list({float, int64, string}) >= 0 = []; feature_list_dense_shapes: list(shape) >= 0 = []",
     UnknownShape},
    {"ParseSequenceExampleV2",
     "serialized: string, debug_name: string, context_sparse_keys: string, context_dense_keys: "
     "string, context_ragged_keys: string, feature_list_sparse_keys: string, "
     "feature_list_dense_keys: string, feature_list_ragged_keys: string, "
     "feature_list_dense_missing_assumed_empty: bool, context_dense_defaults: Tcontext_dense",
     "context_sparse_indices: Ncontext_sparse * int64, context_sparse_values: "
     "context_sparse_types, context_sparse_shapes: Ncontext_sparse * int64, context_dense_values: "
     "Tcontext_dense, context_ragged_values: context_ragged_value_types, "
     "context_ragged_row_splits: context_ragged_split_types, feature_list_sparse_indices: "
     "Nfeature_list_sparse * int64, feature_list_sparse_values: feature_list_sparse_types, "
     "feature_list_sparse_shapes: Nfeature_list_sparse * int64, feature_list_dense_values: "
     "feature_list_dense_types, feature_list_dense_lengths: Nfeature_list_dense * int64, "
     "feature_list_ragged_values: feature_list_ragged_value_types, "
     "feature_list_ragged_outer_splits: feature_list_ragged_split_types, "
     "feature_list_ragged_inner_splits: feature_list_ragged_split_types",
     "Ncontext_sparse: int >= 0 = 0; Tcontext_dense: list({float, int64, string}) >= 0 = []; "
     "context_sparse_types: list({float, int64, string}) >= 0 = []; context_ragged_value_types: "
     "list({float, int64, string}) >= 0 = []; context_ragged_split_types: list({int32, int64}) >= "
     "0 = []; context_dense_shapes: list(shape) >= 0 = []; Nfeature_list_sparse: int >= 0 = 0; "
     "Nfeature_list_dense: int >= 0 = 0; feature_list_dense_types: list({float, int64, string}) >= "
     "0 = []; feature_list_sparse_types: list({float, int64, string}) >= 0 = []; "
     "feature_list_ragged_value_types: list({float, int64, string}) >= 0 = []; "
     "feature_list_ragged_split_types: list({int32, int64}) >= 0 = []; feature_list_dense_shapes: "
     "list(shape) >= 0 = []",
     UnknownShape},
    {"ParseSingleExample", "serialized: string, dense_defaults: Tdense",
     "sparse_indices: num_sparse * int64, sparse_values: sparse_types, sparse_shapes: num_sparse * "
     "int64, dense_values: Tdense",
     "num_sparse: int >= 0; sparse_keys: list(string) >= 0; dense_keys: list(string) >= 0; "
     "sparse_types: list({float, int64, string}) >= 0; Tdense: list({float, int64, string}) >= 0; "
     "dense_shapes: list(shape) >= 0",
     UnknownShape},
    {"ParseSingleSequenceExample",
     "serialized: string, feature_list_dense_missing_assumed_empty: string, context_sparse_keys: "
     "Ncontext_sparse * string, context_dense_keys: Ncontext_dense * string, "
     "feature_list_sparse_keys: Nfeature_list_sparse * string, feature_list_dense_keys: "
     "Nfeature_list_dense * string, context_dense_defaults: Tcontext_dense, debug_name: string",
     "context_sparse_indices: Ncontext_sparse * int64, context_sparse_values: "
     "context_sparse_types, context_sparse_shapes: Ncontext_sparse * int64, context_dense_values: "
     "Tcontext_dense, feature_list_sparse_indices: Nfeature_list_sparse * int64, "
     "feature_list_sparse_values: feature_list_sparse_types, feature_list_sparse_shapes: "
     "Nfeature_list_sparse * int64, feature_list_dense_values: feature_list_dense_types",
     "Ncontext_sparse: int >= 0 = 0; Ncontext_dense: int >= 0 = 0; Nfeature_list_sparse: int >= 0 "
     "= 0; Nfeature_list_dense: int >= 0 = 0; context_sparse_types: list({float, int64, string}) "
     ">= 0 = []; Tcontext_dense: list({float, int64, string}) >= 0 = []; feature_list_dense_types: "
     "list({float, int64, string}) >= 0 = []; context_dense_shapes: list(shape) >= 0 = []; "
     "feature_list_sparse_types: list({float, int64, string}) >= 0 = []; "
     "feature_list_dense_shapes: list(shape) >= 0 = []",
     UnknownShape},
    {"ParseTensor", "serialized: string", "output: out_type", "out_type: type", UnknownShape},
    {"ReadFile", "filename: string", "contents: string", "", ScalarShape},
    {"ReduceJoin", "inputs: string, reduction_indices: int32", "output: string",
     "keep_dims: bool = false; separator: string = ''", ReductionShape},
    {"RegexFullMatch", "input: string, pattern: string", "output: bool", "", UnchangedShape},
    {"RegexReplace", "input: string, pattern: string, rewrite: string", "output: string",
     "replace_global: bool = true", UnchangedShape},
    {"SerializeTensor", "tensor: T", "serialized: string", "T: type", ScalarShape},
    {"StaticRegexReplace", "input: string", "output: string",
     "pattern: string; rewrite: string; replace_global: bool = true", UnchangedShape},
    {"StringFormat", "inputs: T", "output: string",
     "T: list(type) >= 0; template: string = '%s'; placeholder: string = '%s'; summarize: int = 3",
     ScalarShape},
    {"StringLength", "input: string", "output: int32", "unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'",
     UnchangedShape},
    {"StringLower", "input: string", "output: string", "encoding: string = ''", UnchangedShape},
    {"StringSplit", "input: string, delimiter: string",
     "indices: int64, values: string, shape: int64", "skip_empty: bool = true", SplitToSparseShape},
    {"StringSplitV2", "input: string, sep: string", "indices: int64, values: string, shape: int64",
     "maxsplit: int = -1", SplitToSparseShape},
    {"StringStrip", "input: string", "output: string", "", UnchangedShape},
    {"StringToHashBucket", "string_tensor: string", "output: int64", "num_buckets: int >= 1",
     UnchangedShape},
    {"StringToHashBucketFast", "input: string", "output: int64", "num_buckets: int >= 1",
     UnchangedShape},
    {"StringToHashBucketStrong", "input: string", "output: int64",
     "num_buckets: int >= 1; key: list(int)", UnchangedShape},
    {"StringToNumber", "string_tensor: string", "output: out_type",
     "out_type: {float, double, int32, int64, uint32, uint64} = float", UnchangedShape},
    {"StringUpper", "input: string", "output: string", "encoding: string = ''", UnchangedShape},
    {"Substr", "input: string, pos: T, len: T", "output: string",
     "T: {int32, int64}; unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'", SubstrShape},
    {"UnsortedSegmentJoin", "inputs: string, segment_ids: Tindices, num_segments: Tnumsegments",
     "output: string",
     "separator: string = ''; Tindices: {int32, int64}; Tnumsegments: {int32, int64} = int32",
     UnknownShape},
    {"WriteFile", "filename: string, contents: string", "", "", NoOutputs, kStateful},
};

}  // namespace

Status RegisterTextOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
