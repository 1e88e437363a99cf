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
};

struct ParsedExamples {
  std::vector<Tensor> dense;
  std::vector<Tensor> sparse_indices, sparse_values, sparse_shapes;
  std::vector<Tensor> ragged_values, ragged_splits;
};

// The values of one type, one after another.
class FeatureColumn {
 public:
  explicit FeatureColumn(DataType dtype) : dtype_(dtype) {}
  // Adds the feature's values; InvalidArgument, beginning with `where`, if it has another type.
  // *count: how many there were; a feature without values is of any type.
  Status Add(const pb::Feature& feature, std::string_view where, int64_t* count);
  // Adds `n` elements of `standard`, which holds one (all the same) or n; zeros if it is empty.
  void AddStandard(const Tensor& standard, int64_t n);
  StatusOr<Tensor> Take(const Shape& shape);

 private:
  const DataType dtype_;
  std::vector<float> floats_;
  std::vector<int64_t> ints_;
  std::vector<std::string> strings_;
};

// Parses one message per row. `names` (may be empty) go into error messages. With `single` the
// outputs have no axis for the batch. InvalidArgument for what does not parse, is missing or
// does not fit.
StatusOr<ParsedExamples> ParseExamples(const ExampleSpec& spec,
                                       std::span<const std::string> serialized,
                                       std::span<const std::string> names, bool single);
// The same over features that were parsed before.
StatusOr<ParsedExamples> ParseFeatures(const ExampleSpec& spec,
                                       std::span<const pb::Features* const> rows,
                                       std::span<const std::string> names, bool single);

}  // namespace millrace

#endif  // KERNELS_IO_EXAMPLE_PARSER_H_
