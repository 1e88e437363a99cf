#include "kernels/io/example_parser.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "kernels/common/element_copy.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

DataType TypeOf(const pb::Feature& feature) {
  switch (feature.kind_case()) {
    case pb::Feature::kBytesList:
      return kString;
    case pb::Feature::kFloatList:
      return kFloat;
    case pb::Feature::kInt64List:
      return kInt64;
    default:
      return DataType::kInvalid;
  }
}

std::string Where(std::span<const std::string> names, std::size_t row, std::string_view key) {
  return StrCat("Name: ", row < names.size() ? names[row] : "<unknown>", ", Key: ", key,
                ", Index: ", row, ".  ");
}

// Null if the example does not have it, or has it without a value.
const pb::Feature* Find(const pb::Features& features, const std::string& key) {
  const auto it = features.feature().find(key);
  return it == features.feature().end() || TypeOf(it->second) == DataType::kInvalid ? nullptr
                                                                                    : &it->second;
}

// Whether a tensor of these sizes could be had now, before its values are made one by one.
Status CheckRoom(DataType dtype, std::span<const int64_t> dims) {
  constexpr int64_t kFew = int64_t{1} << 16;
  MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
  if (shape.num_elements() <= kFew) return OkStatus();
  return Tensor::Allocate(HostAllocator(), dtype, shape).status();
}

StatusOr<Tensor> ParseDense(const DenseFeature& spec, std::span<const pb::Features* const> rows,
                            std::span<const std::string> names, bool single) {
  FeatureColumn column(spec.dtype);
  if (!spec.shape.has_rank()) {
    return errors::InvalidArgument("dense_shape of feature ", spec.key, " has no rank");
  }
  const bool variable = spec.shape.rank() > 0 && spec.shape.dim(0) < 0;
  int64_t row_size = 1;
  for (int i = variable ? 1 : 0; i < spec.shape.rank(); ++i) {
    if (spec.shape.dim(i) < 0) {
      return errors::InvalidArgument("dense_shape of feature ", spec.key,
                                     " is not fully defined: ", spec.shape.DebugString());
    }
    row_size = Shape({row_size, spec.shape.dim(i)}).num_elements();
    if (row_size < 0) {
      return errors::InvalidArgument("dense_shape of feature ", spec.key,
                                     " is too large: ", spec.shape.DebugString());
    }
  }
  Dims dims;
  if (!single) dims.push_back(static_cast<int64_t>(rows.size()));
  if (!variable) {
    // Standard values are made one by one: not before it is known that they fit.
    dims.insert(dims.end(), spec.shape.dims().begin(), spec.shape.dims().end());
    MR_RETURN_IF_ERROR(CheckRoom(spec.dtype, dims));
  }
  std::vector<FeatureColumn> parts;  // of variable length
  std::vector<int64_t> counts;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const pb::Feature* feature = Find(*rows[r], spec.key);
    if (variable) parts.emplace_back(spec.dtype);
    FeatureColumn& to = variable ? parts.back() : column;
    int64_t count = 0;
    if (feature == nullptr) {
      if (!variable && spec.standard.num_elements() == 0) {
        return errors::InvalidArgument(
            "Name: ", r < names.size() ? names[r] : "<unknown>", ", Feature: ", spec.key,
            " (data type: ", DataTypeName(spec.dtype), ") is required but could not be found.");
      }
      if (!variable) to.AddStandard(spec.standard, row_size);
    } else {
      const std::string where = Where(names, r, spec.key);
      MR_RETURN_IF_ERROR(to.Add(*feature, where, &count));
      const bool fits = variable ? row_size > 0 && count % row_size == 0 : count == row_size;
      if (!fits) {
        return errors::InvalidArgument(where, "Number of ", DataTypeName(spec.dtype),
                                       " values != expected.  Values size: ", count,
                                       " but output shape: ", spec.shape.DebugString());
      }
    }
    counts.push_back(count);
  }
  if (!variable) return column.Take(Shape(dims));
  const int64_t longest = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  dims.push_back(longest / std::max<int64_t>(row_size, 1));
  dims.insert(dims.end(), spec.shape.dims().begin() + 1, spec.shape.dims().end());
  MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
  MR_ASSIGN_OR_RETURN(Tensor whole, ZeroTensor(HostAllocator(), spec.dtype, shape));
  for (std::size_t r = 0; r < parts.size(); ++r) {
    parts[r].AddStandard(spec.standard, longest - counts[r]);
    MR_ASSIGN_OR_RETURN(const Tensor part, parts[r].Take(Shape({longest})));
    CopyRange(part, 0, &whole, static_cast<int64_t>(r) * longest, longest);
  }
  return whole;
}

// The values of all rows and how many each has.
Status ParseList(const ListFeature& spec, std::span<const pb::Features* const> rows,
                 std::span<const std::string> names, Tensor* values, std::vector<int64_t>* counts) {
  FeatureColumn column(spec.dtype);
  int64_t total = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    int64_t count = 0;
    if (const pb::Feature* feature = Find(*rows[r], spec.key)) {
      MR_RETURN_IF_ERROR(column.Add(*feature, Where(names, r, spec.key), &count));
    }
    counts->push_back(count);
    total += count;
  }
  MR_ASSIGN_OR_RETURN(*values, column.Take(Shape({total})));
  return OkStatus();
}

Status AddSparse(const std::vector<int64_t>& counts, bool single, ParsedExamples* out) {
  int64_t total = 0, longest = 0;
  for (const int64_t n : counts) {
    total += n;
    longest = std::max(longest, n);
  }
  const int rank = single ? 1 : 2;
  MR_ASSIGN_OR_RETURN(Tensor indices,
                      Tensor::Allocate(HostAllocator(), kInt64, Shape({total, rank})));
  int64_t* to = indices.num_elements() == 0 ? nullptr : indices.data<int64_t>();
  for (std::size_t r = 0; r < counts.size(); ++r) {
    for (int64_t k = 0; k < counts[r]; ++k) {
      if (!single) *to++ = static_cast<int64_t>(r);
      *to++ = k;
    }
  }
  out->sparse_indices.push_back(std::move(indices));
  out->sparse_shapes.push_back(
      single ? Tensor::FromValues<int64_t>({longest})
             : Tensor::FromValues<int64_t>({static_cast<int64_t>(counts.size()), longest}));
  return OkStatus();
}

Status AddSplits(const std::vector<int64_t>& counts, DataType dtype, ParsedExamples* out) {
  const auto length = static_cast<int64_t>(counts.size()) + 1;
  MR_ASSIGN_OR_RETURN(Tensor splits, Tensor::Allocate(HostAllocator(), dtype, Shape({length})));
  int64_t at = 0;
  for (std::size_t r = 0; r <= counts.size(); ++r) {
    if (dtype == kInt32) {
      splits.data<int32_t>()[r] = static_cast<int32_t>(at);
    } else {
      splits.data<int64_t>()[r] = at;
    }
    if (r < counts.size()) at += counts[r];
  }
  out->ragged_splits.push_back(std::move(splits));
  return OkStatus();
}

}  // namespace

Status FeatureColumn::Add(const pb::Feature& feature, std::string_view where, int64_t* count) {
  *count = 0;
  const DataType type = TypeOf(feature);
  if (type == DataType::kInvalid) return OkStatus();
  if (type != dtype_) {
    return errors::InvalidArgument(where, "Data types don't match. Data type: ", DataTypeName(type),
                                   " but expected type: ", DataTypeName(dtype_));
  }
  if (type == kFloat) {
    const auto& from = feature.float_list().value();
    floats_.insert(floats_.end(), from.begin(), from.end());
    *count = from.size();
  } else if (type == kInt64) {
    const auto& from = feature.int64_list().value();
    ints_.insert(ints_.end(), from.begin(), from.end());
    *count = from.size();
  } else {
    const auto& from = feature.bytes_list().value();
    strings_.insert(strings_.end(), from.begin(), from.end());
    *count = from.size();
  }
  return OkStatus();
}

void FeatureColumn::AddStandard(const Tensor& standard, int64_t n) {
  const int64_t given = standard.num_elements();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = given == 1 ? 0 : i;
    if (dtype_ == kFloat) floats_.push_back(given == 0 ? 0 : standard.data<float>()[at]);
    if (dtype_ == kInt64) ints_.push_back(given == 0 ? 0 : standard.data<int64_t>()[at]);
    if (dtype_ == kString) {
      strings_.push_back(given == 0 ? std::string() : standard.data<std::string>()[at]);
    }
  }
}

StatusOr<Tensor> FeatureColumn::Take(const Shape& shape) {
  MR_ASSIGN_OR_RETURN(Tensor t, Tensor::Allocate(HostAllocator(), dtype_, shape));
  if (shape.num_elements() == 0) return t;
  if (dtype_ == kFloat) std::copy(floats_.begin(), floats_.end(), t.data<float>());
  if (dtype_ == kInt64) std::copy(ints_.begin(), ints_.end(), t.data<int64_t>());
  if (dtype_ == kString) std::move(strings_.begin(), strings_.end(), t.data<std::string>());
  return t;
}

StatusOr<ParsedExamples> ParseFeatures(const ExampleSpec& spec,
                                       std::span<const pb::Features* const> rows,
                                       std::span<const std::string> names, bool single) {
  ParsedExamples out;
  for (const DenseFeature& feature : spec.dense) {
    MR_ASSIGN_OR_RETURN(Tensor t, ParseDense(feature, rows, names, single));
    out.dense.push_back(std::move(t));
  }
  for (const ListFeature& feature : spec.sparse) {
    Tensor values;
    std::vector<int64_t> counts;
    MR_RETURN_IF_ERROR(ParseList(feature, rows, names, &values, &counts));
    out.sparse_values.push_back(std::move(values));
    MR_RETURN_IF_ERROR(AddSparse(counts, single, &out));
  }
  for (const ListFeature& feature : spec.ragged) {
    Tensor values;
    std::vector<int64_t> counts;
    MR_RETURN_IF_ERROR(ParseList(feature, rows, names, &values, &counts));
    out.ragged_values.push_back(std::move(values));
    // One example has one list, and nothing to split.
    if (single) {
      out.ragged_splits.push_back(Tensor(feature.splits_dtype, Shape({0})));
    } else {
      MR_RETURN_IF_ERROR(AddSplits(counts, feature.splits_dtype, &out));
    }
  }
  return out;
}

StatusOr<ParsedExamples> ParseExamples(const ExampleSpec& spec,
                                       std::span<const std::string> serialized,
                                       std::span<const std::string> names, bool single) {
  std::vector<pb::Example> examples(serialized.size());
  std::vector<const pb::Features*> rows;
  for (std::size_t r = 0; r < serialized.size(); ++r) {
    if (!examples[r].ParseFromString(serialized[r])) {
      return errors::InvalidArgument("Could not parse example input, value: '",
                                     CEscape(std::string_view(serialized[r]).substr(0, 100)), "'");
    }
    rows.push_back(&examples[r].features());
  }
  return ParseFeatures(spec, rows, names, single);
}

}  // namespace millrace
