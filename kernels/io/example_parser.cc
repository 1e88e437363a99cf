// SPDX-License-Identifier: Apache-2.0
#include "kernels/io/example_parser.h"

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "kernels/common/element_copy.h"
#include "kernels/io/example_wire.h"
#include "kernels/kernel_context.h"
#include "tensor/allocator.h"

namespace millrace {
namespace {

// What is wrong with features, in TensorFlow's words.
class Complaints {
 public:
  Complaints(std::span<const std::string> names, bool is_context)
      : names_(names), is_context_(is_context) {}

  Status Missing(std::size_t row, const DenseFeature& spec) const {
    return errors::InvalidArgument("Name: ", Name(row), ", Feature: ", spec.key,
                                   " (data type: ", DataTypeName(spec.dtype),
                                   ") is required but could not be found.");
  }
  Status WrongType(std::size_t row, std::string_view key, DataType type, DataType expected,
                   bool is_dense) const {
    const std::string found = DataTypeName(type), wanted = DataTypeName(expected);
    if (is_context_) {
      return errors::InvalidArgument("Name: ", Name(row), ", Context feature: ", key,
                                     ".  Data types don't match. Expected type: ", wanted);
    }
    if (is_dense) {
      return errors::InvalidArgument(Where(row, key), "Data types don't match. Data type: ", found,
                                     " but expected type: ", wanted);
    }
    return errors::InvalidArgument(Where(row, key),
                                   "Data types don't match. Expected type: ", wanted,
                                   ", Actual type: ", found);
  }
  Status WrongCount(std::size_t row, const DenseFeature& spec, int64_t count) const {
    if (is_context_) {
      return errors::InvalidArgument("Unexpected number of elements in example ", Name(row));
    }
    return errors::InvalidArgument(Where(row, spec.key), "Number of ", ListName(spec.dtype),
                                   " values != expected.  Values size: ", count,
                                   " but output shape: ", spec.shape.DebugString());
  }
  Status NoMultiple(std::size_t row, const DenseFeature& spec, int64_t count) const {
    return errors::InvalidArgument(Where(row, spec.key), "Number of ", ListName(spec.dtype),
                                   " values is not a multiple of stride length. Saw ", count,
                                   " values but output shape is: ", spec.shape.DebugString());
  }
  // Of a context's feature that no row has as it should be.
  static Status WrongMost(const DenseFeature& spec, int64_t expected, int64_t most) {
    return errors::InvalidArgument("Inconsistent max number of elements for feature ", spec.key,
                                   ": expected ", expected, ", but found ", most);
  }

 private:
  // As messages call it: bytes, not strings.
  static std::string ListName(DataType dtype) {
    return dtype == kString ? "bytes" : DataTypeName(dtype);
  }
  std::string_view Name(std::size_t row) const {
    return row < names_.size() ? std::string_view(names_[row]) : "<unknown>";
  }
  std::string Where(std::size_t row, std::string_view key) const {
    return StrCat("Name: ", Name(row), ", Key: ", key, ", Index: ", row, ".  ");
  }

  const std::span<const std::string> names_;
  const bool is_context_;
};

// Null if the example does not have it, or has it without a value.
const pb::Feature* Find(const pb::Features& features, const std::string& key) {
  const auto it = features.feature().find(key);
  return it == features.feature().end() || FeatureType(it->second) == DataType::kInvalid
             ? nullptr
             : &it->second;
}

// Whether a tensor of these sizes could be had now, before its values are made one by one.
Status CheckRoom(DataType dtype, std::span<const int64_t> dims) {
  constexpr int64_t kFew = int64_t{1} << 16;
  MR_ASSIGN_OR_RETURN(const Shape shape, MakeShape(dims));
  if (shape.num_elements() <= kFew) return OkStatus();
  return Tensor::Allocate(HostAllocator(), dtype, shape).status();
}

// What a dense feature is like, apart from its values.
struct DenseLayout {
  bool variable = false;  // the first size of its shape is unknown
  int64_t row_size = 1;   // values of one row, or of one step of a variable one
  Dims dims;              // of the output, where it is not variable; else the sizes of the batch
};

StatusOr<DenseLayout> LayOut(const DenseFeature& spec, int64_t rows, bool single) {
  if (!spec.shape.has_rank()) {
    return errors::InvalidArgument("dense_shape of feature ", spec.key, " has no rank");
  }
  DenseLayout layout;
  layout.variable = spec.shape.rank() > 0 && spec.shape.dim(0) < 0;
  for (int i = layout.variable ? 1 : 0; i < spec.shape.rank(); ++i) {
    if (spec.shape.dim(i) < 0) {
      return errors::InvalidArgument("dense_shape of feature ", spec.key,
                                     " is not fully defined: ", spec.shape.DebugString());
    }
    layout.row_size = Shape({layout.row_size, spec.shape.dim(i)}).num_elements();
    if (layout.row_size < 0) {
      return errors::InvalidArgument("dense_shape of feature ", spec.key,
                                     " is too large: ", spec.shape.DebugString());
    }
  }
  if (!single) layout.dims.push_back(rows);
  if (!layout.variable) {
    layout.dims.insert(layout.dims.end(), spec.shape.dims().begin(), spec.shape.dims().end());
  }
  return layout;
}

// The shape of a variable feature whose longest row has so many values.
StatusOr<Shape> VariableShape(const DenseFeature& spec, const DenseLayout& layout,
                              int64_t longest) {
  Dims dims = layout.dims;
  dims.push_back(longest / std::max<int64_t>(layout.row_size, 1));
  dims.insert(dims.end(), spec.shape.dims().begin() + 1, spec.shape.dims().end());
  return MakeShape(dims);
}

// Of a feature that a row has.
Status CheckCount(const DenseFeature& spec, const DenseLayout& layout, const Complaints& complaints,
                  std::size_t row, int64_t count) {
  if (!layout.variable && count != layout.row_size) return complaints.WrongCount(row, spec, count);
  if (layout.variable && (layout.row_size == 0 || count % layout.row_size != 0)) {
    return complaints.NoMultiple(row, spec, count);
  }
  return OkStatus();
}

// The row with most values has as many as all should: what is looked at first in contexts.
Status CheckMost(const DenseFeature& spec, std::span<const pb::Features* const> rows,
                 int64_t expected) {
  int64_t most = 0;
  for (const pb::Features* row : rows) {
    const pb::Feature* const feature = Find(*row, spec.key);
    if (feature != nullptr && FeatureType(*feature) != spec.dtype) return OkStatus();  // said later
    if (feature != nullptr) most = std::max(most, FeatureCount(*feature));
  }
  if (most == expected || (most == 0 && spec.standard.num_elements() > 0)) return OkStatus();
  return Complaints::WrongMost(spec, expected, most);
}

StatusOr<Tensor> ParseDense(const DenseFeature& spec, std::span<const pb::Features* const> rows,
                            const Complaints& complaints, bool single, bool is_context) {
  FeatureColumn column(spec.dtype);
  MR_ASSIGN_OR_RETURN(const DenseLayout layout,
                      LayOut(spec, static_cast<int64_t>(rows.size()), single));
  const bool variable = layout.variable;
  // Standard values are made one by one: not before it is known that they fit.
  if (!variable) MR_RETURN_IF_ERROR(CheckRoom(spec.dtype, layout.dims));
  if (is_context && !variable) MR_RETURN_IF_ERROR(CheckMost(spec, rows, layout.row_size));
  std::vector<FeatureColumn> parts;  // of variable length
  std::vector<int64_t> counts;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const pb::Feature* feature = Find(*rows[r], spec.key);
    if (variable) parts.emplace_back(spec.dtype);
    FeatureColumn& to = variable ? parts.back() : column;
    int64_t count = 0;
    if (feature == nullptr) {
      if (!variable && spec.standard.num_elements() == 0) {
        return complaints.Missing(r, spec);
      }
      if (!variable) to.AddStandard(spec.standard, layout.row_size);
    } else {
      if (!to.Add(*feature, &count)) {
        return complaints.WrongType(r, spec.key, FeatureType(*feature), spec.dtype,
                                    /*is_dense=*/true);
      }
      MR_RETURN_IF_ERROR(CheckCount(spec, layout, complaints, r, count));
    }
    counts.push_back(count);
  }
  if (!variable) return column.Take(Shape(layout.dims));
  const int64_t longest = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  MR_ASSIGN_OR_RETURN(const Shape shape, VariableShape(spec, layout, longest));
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
                 const Complaints& complaints, Tensor* values, std::vector<int64_t>* counts) {
  FeatureColumn column(spec.dtype);
  int64_t total = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    int64_t count = 0;
    if (const pb::Feature* feature = Find(*rows[r], spec.key)) {
      if (!column.Add(*feature, &count)) {
        return complaints.WrongType(r, spec.key, FeatureType(*feature), spec.dtype,
                                    /*is_dense=*/false);
      }
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

// --- From bytes -------------------------------------------------------------------------------

// Where the features that are asked for lie in each row.
class FeatureTable {
 public:
  FeatureTable(const KernelContext& ctx, std::span<const std::string> rows,
               const Complaints& complaints)
      : ctx_(ctx), rows_(rows), complaints_(complaints) {}

  // Finds the features of these keys. InvalidArgument if a row is no Example.
  Status Fill(const ExampleSpec& spec) {
    const auto add = [&](const std::string& key) {
      if (numbers_.try_emplace(key, keys_.size()).second) keys_.push_back(key);
    };
    for (const DenseFeature& f : spec.dense) add(f.key);
    for (const ListFeature& f : spec.sparse) add(f.key);
    for (const ListFeature& f : spec.ragged) add(f.key);
    views_.resize(rows_.size() * keys_.size());
    return ForRows(20 + 40 * static_cast<double>(keys_.size()),
                   [&](std::size_t r) { return FillRow(r) ? OkStatus() : NoExample(r); });
  }

  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  const Complaints& complaints() const { return complaints_; }
  std::size_t NumberOf(const std::string& key) const { return numbers_.find(key)->second; }

  // The values of a feature in a row, which must be of the given type; *found: it has a list.
  Status Read(std::size_t row, std::size_t key, DataType dtype, bool is_dense,
              FeatureValues* values, bool* found) const {
    const std::string_view bytes = views_[row * keys_.size() + key];
    *found = false;
    values->Clear();
    if (bytes.data() == nullptr) return OkStatus();
    if (!ReadFeature(bytes, values)) return NoExample(row);
    if (values->type == DataType::kInvalid) return OkStatus();
    *found = true;
    if (values->type == dtype) return OkStatus();
    return complaints_.WrongType(row, keys_[key], values->type, dtype, is_dense);
  }

  // Calls f for each row, on all threads; the error of the first row that has one.
  template <typename F>
  Status ForRows(double cost, F&& f) const {
    Mutex mu;
    std::size_t failed = rows_.size();
    Status status;
    ctx_.ParallelFor(rows(), cost, [&](int64_t begin, int64_t end) {
      for (auto r = static_cast<std::size_t>(begin); r < static_cast<std::size_t>(end); ++r) {
        Status s = f(r);
        if (s.ok()) continue;
        MutexLock lock(&mu);
        if (r < failed) {
          failed = r;
          status = std::move(s);
        }
        return;
      }
    });
    return status;
  }

 private:
  Status NoExample(std::size_t row) const {
    return errors::InvalidArgument("Could not parse example input, value: '",
                                   CEscape(std::string_view(rows_[row]).substr(0, 100)), "'");
  }

  bool FillRow(std::size_t row) {
    std::string_view* const views = views_.data() + row * keys_.size();
    std::size_t guess = 0;  // messages of one writer have their features in one order
    return ForEachFeature(rows_[row],
                          [&](std::string_view key, std::string_view feature, std::string* joined) {
                            if (keys_.empty()) return;
                            if (keys_[guess] != key) {
                              const auto it = numbers_.find(key);
                              if (it == numbers_.end()) return;
                              guess = it->second;
                            }
                            if (joined != nullptr) {
                              MutexLock lock(&mu_);
                              feature = joined_.emplace_back(std::move(*joined));
                            }
                            views[guess] = feature;
                            guess = guess + 1 == keys_.size() ? 0 : guess + 1;
                          });
  }

  const KernelContext& ctx_;
  const std::span<const std::string> rows_;
  const Complaints& complaints_;
  StringMap<std::size_t> numbers_;
  std::vector<std::string> keys_;
  std::vector<std::string_view> views_;  // rows by keys; without data where there is none
  Mutex mu_;
  std::deque<std::string> joined_;
};

// Calls f.template operator()<T>() for the type of a feature's values.
template <typename F>
Status DispatchFeature(DataType dtype, F&& f) {
  if (dtype == kFloat) return f.template operator()<float>();
  if (dtype == kInt64) return f.template operator()<int64_t>();
  if (dtype == kString) return f.template operator()<std::string>();
  return errors::InvalidArgument("features are of type float, int64 or string, not ",
                                 DataTypeName(dtype));
}

// Writes `n` elements of `standard`, as FeatureColumn::AddStandard adds them.
template <typename T>
void CopyStandard(const Tensor& standard, int64_t n, T* to) {
  const int64_t given = standard.num_elements();
  if (given == 0) {
    std::fill_n(to, n, T());
  } else if (given == 1) {
    std::fill_n(to, n, standard.data<T>()[0]);
  } else {
    std::copy_n(standard.data<T>(), n, to);
  }
}

constexpr double kNanosPerRow = 60;

StatusOr<Tensor> ReadDense(const DenseFeature& spec, const FeatureTable& table, bool single) {
  MR_ASSIGN_OR_RETURN(const DenseLayout layout, LayOut(spec, table.rows(), single));
  const std::size_t key = table.NumberOf(spec.key);
  Shape shape;
  int64_t length = layout.row_size;  // values of a row of the output
  if (layout.variable) {
    std::vector<int64_t> counts(static_cast<std::size_t>(table.rows()), 0);
    MR_RETURN_IF_ERROR(table.ForRows(kNanosPerRow, [&](std::size_t r) {
      FeatureValues values;
      bool found;
      MR_RETURN_IF_ERROR(table.Read(r, key, spec.dtype, /*is_dense=*/true, &values, &found));
      if (!found) return OkStatus();
      counts[r] = values.count;
      return CheckCount(spec, layout, table.complaints(), r, values.count);
    }));
    length = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
    MR_ASSIGN_OR_RETURN(shape, VariableShape(spec, layout, length));
  } else {
    MR_ASSIGN_OR_RETURN(shape, MakeShape(layout.dims));
  }
  MR_ASSIGN_OR_RETURN(Tensor whole, Tensor::Allocate(HostAllocator(), spec.dtype, shape));
  MR_RETURN_IF_ERROR(DispatchFeature(spec.dtype, [&]<typename T>() {
    T* to = shape.num_elements() == 0 ? nullptr : whole.data<T>();
    return table.ForRows(kNanosPerRow, [&](std::size_t r) {
      FeatureValues values;
      bool found;
      MR_RETURN_IF_ERROR(table.Read(r, key, spec.dtype, /*is_dense=*/true, &values, &found));
      T* const row = to + static_cast<int64_t>(r) * length;
      if (!found) {
        if (!layout.variable && spec.standard.num_elements() == 0) {
          return table.complaints().Missing(r, spec);
        }
      } else if (!layout.variable && values.count != length) {
        return CheckCount(spec, layout, table.complaints(), r, values.count);
      }
      if (found && values.count > 0) CopyValues(values, row);
      if (values.count < length) {
        CopyStandard(spec.standard, length - values.count, row + values.count);
      }
      return OkStatus();
    });
  }));
  return whole;
}

// The values of all rows and how many each has.
Status ReadList(const ListFeature& spec, const FeatureTable& table, Tensor* values,
                std::vector<int64_t>* counts) {
  const std::size_t key = table.NumberOf(spec.key);
  counts->assign(static_cast<std::size_t>(table.rows()), 0);
  MR_RETURN_IF_ERROR(table.ForRows(kNanosPerRow, [&](std::size_t r) {
    FeatureValues row;
    bool found;
    MR_RETURN_IF_ERROR(table.Read(r, key, spec.dtype, /*is_dense=*/false, &row, &found));
    (*counts)[r] = row.count;
    return OkStatus();
  }));
  std::vector<int64_t> begins;
  int64_t total = 0;
  for (const int64_t count : *counts) {
    begins.push_back(total);
    total += count;
  }
  MR_ASSIGN_OR_RETURN(*values, Tensor::Allocate(HostAllocator(), spec.dtype, Shape({total})));
  if (total == 0) return OkStatus();
  return DispatchFeature(spec.dtype, [&]<typename T>() {
    T* to = values->data<T>();
    return table.ForRows(kNanosPerRow, [&](std::size_t r) {
      FeatureValues row;
      bool found;
      MR_RETURN_IF_ERROR(table.Read(r, key, spec.dtype, /*is_dense=*/false, &row, &found));
      if (row.count > 0) CopyValues(row, to + begins[r]);
      return OkStatus();
    });
  });
}

// The outputs that `dense` and `list` make of the features: a tensor, and values with counts.
template <typename Dense, typename List>
StatusOr<ParsedExamples> ParseAll(const ExampleSpec& spec, bool single, Dense&& dense,
                                  List&& list) {
  ParsedExamples out;
  for (const DenseFeature& feature : spec.dense) {
    MR_ASSIGN_OR_RETURN(Tensor t, dense(feature));
    out.dense.push_back(std::move(t));
  }
  for (const ListFeature& feature : spec.sparse) {
    Tensor values;
    std::vector<int64_t> counts;
    MR_RETURN_IF_ERROR(list(feature, &values, &counts));
    out.sparse_values.push_back(std::move(values));
    MR_RETURN_IF_ERROR(AddSparse(counts, single, &out));
  }
  for (const ListFeature& feature : spec.ragged) {
    Tensor values;
    std::vector<int64_t> counts;
    MR_RETURN_IF_ERROR(list(feature, &values, &counts));
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

}  // namespace

DataType FeatureType(const pb::Feature& feature) {
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

int64_t FeatureCount(const pb::Feature& feature) {
  return std::max({feature.float_list().value_size(), feature.int64_list().value_size(),
                   feature.bytes_list().value_size()});
}

bool FeatureColumn::Add(const pb::Feature& feature, int64_t* count) {
  *count = 0;
  const DataType type = FeatureType(feature);
  if (type == DataType::kInvalid) return true;
  if (type != dtype_) return false;
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
  return true;
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
  const Complaints complaints(names, spec.is_context);
  return ParseAll(
      spec, single,
      [&](const DenseFeature& feature) {
        return ParseDense(feature, rows, complaints, single, spec.is_context);
      },
      [&](const ListFeature& feature, Tensor* values, std::vector<int64_t>* counts) {
        return ParseList(feature, rows, complaints, values, counts);
      });
}

StatusOr<ParsedExamples> ParseExamples(const KernelContext& ctx, const ExampleSpec& spec,
                                       std::span<const std::string> serialized,
                                       std::span<const std::string> names, bool single) {
  const Complaints complaints(names, spec.is_context);
  FeatureTable table(ctx, serialized, complaints);
  MR_RETURN_IF_ERROR(table.Fill(spec));
  return ParseAll(
      spec, single, [&](const DenseFeature& feature) { return ReadDense(feature, table, single); },
      [&](const ListFeature& feature, Tensor* values, std::vector<int64_t>* counts) {
        return ReadList(feature, table, values, counts);
      });
}

}  // namespace millrace
