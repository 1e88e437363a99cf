// SPDX-License-Identifier: Apache-2.0
// Taking features out of Example messages: dense ones of a known shape, sparse ones, and rows
// of different length.
#ifndef KERNELS_IO_EXAMPLE_PARSER_H_
#define KERNELS_IO_EXAMPLE_PARSER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "millrace/status.h"
#include "millrace/tensor.h"
#include "proto/example.pb.h"

namespace millrace {

class KernelContext;

// One feature of which every example has the same number of values, or (if the first size of
// `shape` is unknown) up to as many as the longest one, filled up with `standard`.
struct DenseFeature {
  std::string key;
  DataType dtype = kFloat;
  PartialShape shape;
  Tensor standard;  // the default; no elements: the feature is required
};
// One whose values come as a list per example.
struct ListFeature {
  std::string key;
  DataType dtype = kFloat;
  DataType splits_dtype = kInt64;  // of ragged ones
};

struct ExampleSpec {
  std::vector<DenseFeature> dense;
  std::vector<ListFeature> sparse, ragged;
  bool is_context = false;  // of SequenceExample messages, of which errors speak in other words
};

struct ParsedExamples {
  std::vector<Tensor> dense;
  std::vector<Tensor> sparse_indices, sparse_values, sparse_shapes;
  std::vector<Tensor> ragged_values, ragged_splits;
};

// The type of a feature's values, kInvalid for one that has none, and how many they are.
DataType FeatureType(const pb::Feature& feature);
int64_t FeatureCount(const pb::Feature& feature);

// The values of one type, one after another.
class FeatureColumn {
 public:
  explicit FeatureColumn(DataType dtype) : dtype_(dtype) {}
  // Adds the feature's values, unless it has another type: false then. *count: how many there were;
  // a feature without values is of any type.
  [[nodiscard]] bool Add(const pb::Feature& feature, int64_t* count);
  // Adds `n` elements of `standard`, which holds one (all the same) or n; zeros if it is empty.
  void AddStandard(const Tensor& standard, int64_t n);
  StatusOr<Tensor> Take(const Shape& shape);

 private:
  const DataType dtype_;
  std::vector<float> floats_;
  std::vector<int64_t> ints_;
  std::vector<std::string> strings_;
};

// Parses one message per row, rows on all threads of the context. `names` (may be empty) go into
// error messages. With `single` the outputs have no axis for the batch. InvalidArgument for what
// does not parse, is missing or does not fit; features that nobody asks for are not looked at.
StatusOr<ParsedExamples> ParseExamples(const KernelContext& ctx, const ExampleSpec& spec,
                                       std::span<const std::string> serialized,
                                       std::span<const std::string> names, bool single);
// The same over features that were parsed before, on this thread.
StatusOr<ParsedExamples> ParseFeatures(const ExampleSpec& spec,
                                       std::span<const pb::Features* const> rows,
                                       std::span<const std::string> names, bool single);

}  // namespace millrace

#endif  // KERNELS_IO_EXAMPLE_PARSER_H_
