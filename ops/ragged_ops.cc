// SPDX-License-Identifier: Apache-2.0
// Rows of different lengths, and the texts and characters that are kept in such.
#include "base/errors.h"
#include "base/status_macros.h"
#include "ops/all_ops.h"
#include "ops/op_def_builder.h"
#include "ops/shape_fns.h"

namespace millrace {
namespace {

constexpr int kMaxRank = 254;  // of a shape

int64_t FirstDim(const PartialShape& shape) { return shape.has_rank() ? shape.dim(0) : -1; }

// -1 if not known.
int64_t NumElements(const PartialShape& shape) {
  if (!shape.has_rank()) return -1;
  int64_t elements = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape.dim(i) < 0) return -1;
    if (__builtin_mul_overflow(elements, shape.dim(i), &elements)) return -1;
  }
  return elements;
}

// The attribute `rank`; inputs [0, rank) are vectors, and the next has at least one dimension.
StatusOr<int> SplitsAndValues(const InferenceContext& c, const char* rank) {
  MR_ASSIGN_OR_RETURN(const int64_t splits, c.attr<int64_t>(rank));
  for (int i = 0; i < splits; ++i) MR_RETURN_IF_ERROR(c.WithRank(i, 1).status());
  MR_RETURN_IF_ERROR(c.WithRankAtLeast(static_cast<int>(splits), 1).status());
  return static_cast<int>(splits);
}

Status RaggedGatherShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const int rank, SplitsAndValues(c, "PARAMS_RAGGED_RANK"));
  MR_ASSIGN_OR_RETURN(const int64_t outputs, c.attr<int64_t>("OUTPUT_RAGGED_RANK"));
  if (outputs < rank - 1 || outputs > rank + kMaxRank) {
    return errors::InvalidArgument("OUTPUT_RAGGED_RANK must be indices.rank + ", rank - 1);
  }
  MR_RETURN_IF_ERROR(c.WithRank(rank + 1, static_cast<int>(outputs) - rank + 1).status());
  for (int i = 0; i < outputs; ++i) c.set_output(i, UnknownDims(1));
  const PartialShape& values = c.input(rank);
  if (values.has_rank()) {
    c.set_output(static_cast<int>(outputs), ConcatShapes(UnknownDims(1), SubShape(values, 1)));
  }
  return OkStatus();
}

Status RaggedToSparseShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const int rank, SplitsAndValues(c, "RAGGED_RANK"));
  const PartialShape& values = c.input(rank);
  const int64_t dims = values.has_rank() ? values.rank() + rank : -1;
  c.set_output(0, PartialShape({NumElements(values), dims}));
  c.set_output(1, PartialShape({NumElements(values)}));
  c.set_output(2, PartialShape({dims}));
  return OkStatus();
}

// The shape that is asked for, else the rank that the pieces have.
Status RaggedToTensorShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const auto types, c.attr<std::vector<std::string>>("row_partition_types"));
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(0));
  const PartialShape& values = c.input(1);
  if (types.empty() || !values.has_rank()) return UnknownShape(c);
  const int rank = static_cast<int>(types.size()) - (types[0] == "FIRST_DIM_SIZE" ? 1 : 0);
  if (rank + values.rank() > kMaxRank) return UnknownShape(c);
  if (values.rank() > 0) {
    const PartialShape all = ConcatShapes(UnknownDims(rank + 1), SubShape(values, 1));
    if (!shape.has_rank()) shape = all;
    if (shape.rank() != all.rank()) {
      return errors::InvalidArgument("the shape that is asked for, ", shape.DebugString(),
                                     ", must have rank ", all.rank());
    }
    for (int i = 0; i < shape.rank(); ++i) {
      if (shape.dim(i) < 0) shape.SetDim(i, all.dim(i));
    }
  }
  c.set_output(0, shape);
  return OkStatus();
}

Status RaggedToVariantShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const bool batched, c.attr<bool>("batched_input"));
  MR_ASSIGN_OR_RETURN(const int rank, SplitsAndValues(c, "RAGGED_RANK"));
  if (!batched) return ScalarShape(c);
  if (rank == 0) {
    return errors::InvalidArgument(
        "ragged_rank=0 is not currently supported when batched_input=true.");
  }
  const int64_t splits = FirstDim(c.input(0));
  c.set_output(0, PartialShape({splits > 0 ? splits - 1 : -1}));
  return OkStatus();
}

Status RaggedFromVariantShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t in, c.attr<int64_t>("input_ragged_rank"));
  MR_ASSIGN_OR_RETURN(const int64_t out, c.attr<int64_t>("output_ragged_rank"));
  if (in >= 0) {
    if (out < in || out - in > kMaxRank) {
      return errors::InvalidArgument("output_ragged_rank must be at least input_ragged_rank, got ",
                                     out, " and ", in);
    }
    MR_RETURN_IF_ERROR(c.WithRank(0, static_cast<int>(out - in)).status());
  }
  for (int i = 0; i < out; ++i) c.set_output(i, UnknownDims(1));
  return OkStatus();
}

Status RaggedGradientShape(InferenceContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.InputAsShape(2));
  c.set_output(0, std::move(shape));
  return OkStatus();
}

Status NGramsShape(InferenceContext& c) {
  for (const int i : {0, 1}) MR_RETURN_IF_ERROR(c.WithRank(i, 1).status());
  c.set_output(0, UnknownDims(1));
  c.set_output(1, c.input(1));
  return OkStatus();
}

// Where the characters of each text begin, and what is said of each character.
Status CharactersShape(InferenceContext& c) {
  const int64_t texts = NumElements(c.input(0));
  c.set_output(0, PartialShape({texts < 0 ? -1 : texts + 1}));
  for (int i = 1; i < c.num_outputs(); ++i) c.set_output(i, UnknownDims(1));
  return OkStatus();
}

Status UnicodeEncodeShape(InferenceContext& c) {
  for (const int i : {0, 1}) MR_RETURN_IF_ERROR(c.WithRank(i, 1).status());
  const int64_t splits = FirstDim(c.input(1));
  c.set_output(0, PartialShape({splits > 0 ? splits - 1 : -1}));
  return OkStatus();
}

constexpr OpSpec kOps[] = {
    {"RaggedBincount", "splits: int64, values: Tidx, size: Tidx, weights: T", "output: T",
     "Tidx: {int32, int64}; T: {int32, int64, float, double}; binary_output: bool = false",
     UnknownShape},
    {"RaggedGather",
     "params_nested_splits: PARAMS_RAGGED_RANK * Tsplits, params_dense_values: Tvalues, indices: "
     "Tindices",
     "output_nested_splits: OUTPUT_RAGGED_RANK * Tsplits, output_dense_values: Tvalues",
     "Tvalues: type; Tindices: {int32, int64}; Tsplits: {int32, int64} = int64; "
     "PARAMS_RAGGED_RANK: int >= 1; OUTPUT_RAGGED_RANK: int >= 0",
     RaggedGatherShape},
    {"RaggedTensorFromVariant", "encoded_ragged: variant",
     "output_nested_splits: output_ragged_rank * Tsplits, output_dense_values: Tvalues",
     "input_ragged_rank: int >= -1; output_ragged_rank: int >= 0; Tvalues: type; Tsplits: {int32, "
     "int64} = int64",
     RaggedFromVariantShape},
    {"RaggedTensorToSparse", "rt_nested_splits: RAGGED_RANK * Tsplits, rt_dense_values: T",
     "sparse_indices: int64, sparse_values: T, sparse_dense_shape: int64",
     "RAGGED_RANK: int >= 1; T: type; Tsplits: {int32, int64} = int64", RaggedToSparseShape},
    {"RaggedTensorToTensor",
     "shape: Tshape, values: T, default_value: T, row_partition_tensors: num_row_partition_tensors "
     "* Tindex",
     "result: T",
     "T: type; Tindex: {int64, int32}; Tshape: {int64, int32}; num_row_partition_tensors: int >= "
     "1; row_partition_types: list(string)",
     RaggedToTensorShape},
    {"RaggedTensorToVariant", "rt_nested_splits: RAGGED_RANK * Tsplits, rt_dense_values: Tvalues",
     "encoded_ragged: ragged(Tvalues)",
     "RAGGED_RANK: int >= 0; Tvalues: type; Tsplits: {int32, int64} = int64; batched_input: bool",
     RaggedToVariantShape},
    {"RaggedTensorToVariantGradient",
     "encoded_ragged_grad: variant, row_splits: Tsplits, dense_values_shape: int32",
     "dense_values_grad: Tvalues", "Tvalues: type; Tsplits: {int32, int64} = int64",
     RaggedGradientShape},
    {"StringNGrams", "data: string, data_splits: Tsplits", "ngrams: string, ngrams_splits: Tsplits",
     "separator: string; ngram_widths: list(int) >= 0; left_pad: string; right_pad: string; "
     "pad_width: int; preserve_short_sequences: bool; Tsplits: {int32, int64} = int64",
     NGramsShape},
    {"UnicodeDecode", "input: string", "row_splits: Tsplits, char_values: int32",
     "input_encoding: string; errors: {'strict', 'replace', 'ignore'} = 'replace'; "
     "replacement_char: int = 65533; replace_control_characters: bool = false; Tsplits: {int32, "
     "int64} = int64",
     CharactersShape},
    {"UnicodeDecodeWithOffsets", "input: string",
     "row_splits: Tsplits, char_values: int32, char_to_byte_starts: int64",
     "input_encoding: string; errors: {'strict', 'replace', 'ignore'} = 'replace'; "
     "replacement_char: int = 65533; replace_control_characters: bool = false; Tsplits: {int32, "
     "int64} = int64",
     CharactersShape},
    {"UnicodeEncode", "input_values: int32, input_splits: Tsplits", "output: string",
     "errors: {'ignore', 'replace', 'strict'} = 'replace'; output_encoding: {'UTF-8', "
     "'UTF-16-BE', 'UTF-32-BE'}; replacement_char: int = 65533; Tsplits: {int32, int64} = int64",
     UnicodeEncodeShape},
    {"UnicodeTranscode", "input: string", "output: string",
     "input_encoding: string; output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}; errors: "
     "{'strict', 'replace', 'ignore'} = 'replace'; replacement_char: int = 65533; "
     "replace_control_characters: bool = false",
     UnchangedShape},
};

}  // namespace

Status RegisterRaggedOps(OpRegistry& registry) { return RegisterOps(registry, kOps); }

}  // namespace millrace
