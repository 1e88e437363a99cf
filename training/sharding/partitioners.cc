// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/partitioners.h"

namespace millrace {
namespace {

Status CheckPositive(std::string_view partitioner, std::string_view argument, int64_t value) {
  if (value > 0) return OkStatus();
  return errors::InvalidArgument(partitioner, ": ", argument, " is ", value,
                                 "; it must be at least 1");
}

StatusOr<int64_t> RowsOf(std::string_view partitioner, const Shape& shape, int axis) {
  if (axis >= 0 && axis < shape.rank()) return shape.dim(axis);
  return errors::InvalidArgument(partitioner, ": a variable of shape ", shape.DebugString(),
                                 " cannot be cut along axis ", axis);
}

double BytesOf(const Shape& shape, DataType dtype, int64_t bytes_per_string) {
  const int64_t element =
      dtype == kString ? bytes_per_string : static_cast<int64_t>(DataTypeSize(dtype));
  return static_cast<double>(shape.num_elements()) * static_cast<double>(element);
}

std::vector<int64_t> Along(int axis, int rank, int64_t count) {
  std::vector<int64_t> counts(rank, 1);
  counts[axis] = count;
  return counts;
}

int64_t DividedUp(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace

Partitioner FixedShards(int64_t num_shards) {
  return [num_shards](const Shape& shape, DataType, int axis) -> StatusOr<std::vector<int64_t>> {
    MR_RETURN_IF_ERROR(CheckPositive("FixedShards", "num_shards", num_shards));
    MR_ASSIGN_OR_RETURN(const int64_t rows, RowsOf("FixedShards", shape, axis));
    return Along(axis, shape.rank(), std::min(num_shards, rows));
  };
}

Partitioner MinSize(const MinSizeOptions& options) {
  return [options](const Shape& shape, DataType dtype, int axis) -> StatusOr<std::vector<int64_t>> {
    MR_RETURN_IF_ERROR(CheckPositive("MinSize", "min_shard_bytes", options.min_shard_bytes));
    MR_RETURN_IF_ERROR(CheckPositive("MinSize", "max_shards", options.max_shards));
    MR_RETURN_IF_ERROR(CheckPositive("MinSize", "bytes_per_string", options.bytes_per_string));
    MR_ASSIGN_OR_RETURN(const int64_t rows, RowsOf("MinSize", shape, axis));
    const auto bytes = static_cast<int64_t>(BytesOf(shape, dtype, options.bytes_per_string));
    const int64_t wanted = DividedUp(bytes, options.min_shard_bytes);
    return Along(axis, shape.rank(),
                 std::max<int64_t>(1, std::min({rows, options.max_shards, wanted})));
  };
}

Partitioner MaxSize(const MaxSizeOptions& options) {
  return [options](const Shape& shape, DataType dtype, int axis) -> StatusOr<std::vector<int64_t>> {
    MR_RETURN_IF_ERROR(CheckPositive("MaxSize", "max_shard_bytes", options.max_shard_bytes));
    MR_RETURN_IF_ERROR(CheckPositive("MaxSize", "bytes_per_string", options.bytes_per_string));
    if (options.max_shards < 0) {
      return errors::InvalidArgument("MaxSize: max_shards is ", options.max_shards,
                                     "; it must be at least 1, or 0 for any number");
    }
    MR_ASSIGN_OR_RETURN(const int64_t rows, RowsOf("MaxSize", shape, axis));
    const double bytes = BytesOf(shape, dtype, options.bytes_per_string);
    if (bytes == 0) {
      return errors::InvalidArgument("MaxSize: a variable of shape ", shape.DebugString(),
                                     " has no elements to be cut by size");
    }
    const double row = bytes / static_cast<double>(rows);
    const auto rows_each = std::max<int64_t>(
        1, static_cast<int64_t>(static_cast<double>(options.max_shard_bytes) / row));
    const int64_t wanted = DividedUp(rows, rows_each);
    return Along(axis, shape.rank(),
                 options.max_shards > 0 ? std::min(wanted, options.max_shards) : wanted);
  };
}

namespace {

// Known by its type.
struct OfAllWeights {
  Partitioner partitioner;

  StatusOr<std::vector<int64_t>> operator()(const Shape& shape, DataType dtype, int axis) const {
    return partitioner(shape, dtype, axis);
  }
};

}  // namespace

Partitioner AllWeights(Partitioner partitioner) {
  if (!partitioner) return partitioner;
  return OfAllWeights{std::move(partitioner)};
}

bool IsForAllWeights(const Partitioner& partitioner) {
  return partitioner.target<OfAllWeights>() != nullptr;
}

}  // namespace millrace
