// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "frontend/graph_builder.h"
#include "frontend/initial_shape.h"
#include "millrace/ops.h"
#include "millrace/partitioners.h"
#include "training/sharding/initial_rows.h"
#include "training/sharding/part_marks.h"

namespace millrace {
namespace {

// 1 if it is not to be cut.
StatusOr<int64_t> CountParts(std::string_view name, const Shape& shape, DataType dtype,
                             const Partitioner& partitioner) {
  if (shape.rank() == 0) return 1;
  MR_ASSIGN_OR_RETURN(const std::vector<int64_t> counts, partitioner(shape, dtype, 0));
  if (static_cast<int>(counts.size()) != shape.rank() ||
      std::any_of(counts.begin() + 1, counts.end(), [](int64_t n) { return n != 1; })) {
    return errors::InvalidArgument("the partitioner of variable '", name, "' of shape ",
                                   shape.DebugString(), " gives the parts (", StrJoin(counts, ", "),
                                   "); one number per axis is expected, 1 but for axis 0");
  }
  return std::clamp<int64_t>(counts[0], 1, std::max<int64_t>(1, shape.dim(0)));
}

// Vectors of integers as constants.
Tensor Numbers(const std::vector<int64_t>& values) {
  return Tensor::FromValues<int64_t>(values, Shape({static_cast<int64_t>(values.size())}));
}

Output RowsOf(const Scope& scope, const Output& value, const Shape& shape, int64_t begin,
              int64_t rows, std::source_location where) {
  std::vector<int64_t> from(shape.rank(), 0), size(shape.dims().begin(), shape.dims().end());
  from[0] = begin;
  size[0] = rows;
  return ops::Slice(scope, value, Numbers(from), Numbers(size), where);
}

// Which part each id belongs to, and its row there.
struct Places {
  Output part, row;
};
Places PlacesOf(const Scope& scope, const ShardedVariable& variable, const Output& ids,
                std::source_location where) {
  const int64_t parts = static_cast<int64_t>(variable.parts.size());
  const int64_t base = variable.shape.dim(0) / parts, extra = variable.shape.dim(0) % parts;
  // The first `extra` parts have a row more than the others.
  const Output in_long = ops::FloorDiv(scope, ids, Tensor::Scalar<int64_t>(base + 1), where);
  const Output in_short =
      ops::FloorDiv(scope, ops::Sub(scope, ids, Tensor::Scalar<int64_t>(extra), where),
                    Tensor::Scalar<int64_t>(base), where);
  const Output part = ops::Maximum(scope, in_long, in_short, where);
  std::vector<int64_t> begins;
  for (const VariablePart& p : variable.parts) begins.push_back(p.begin);
  // An id that is no row has no part, and fails in the partition.
  const Output known =
      ops::Minimum(scope, ops::Maximum(scope, part, Tensor::Scalar<int64_t>(0), where),
                   Tensor::Scalar<int64_t>(parts - 1), where);
  const Output begin = ops::GatherV2(scope, Numbers(begins), known, 0, {}, where);
  return {ops::Cast(scope, part, kInt32, {}, where), ops::Sub(scope, ids, begin, where)};
}

Output AsVectorOfInt64(const Scope& scope, const Output& ids, std::source_location where) {
  Output wide = ids;
  if (ids.dtype() != kInt64) wide = ops::Cast(scope, ids, kInt64, {}, where);
  return ops::Reshape(scope, wide, Numbers({-1}), where);
}

// The i-th part. Its first values are computed on its device where that can be done without the
// others; else they are taken out of the whole.
Variable MakePart(const Scope& scope, std::string_view name, int64_t i, const Output& initial_value,
                  const Shape& whole, int64_t begin, int64_t rows, const VariableOptions& options,
                  std::source_location where) {
  const Scope free = scope.WithoutControlDependencies();
  DataflowGraph& graph = *scope.graph()->graph;
  const int first = graph.num_node_ids();
  Output value = InitialRows(free.Named(StrCat(name, "/Initializer/part_", i)), initial_value,
                             whole, begin, rows, where);
  const int last = value.valid() ? graph.num_node_ids() : first;
  if (!value.valid()) value = RowsOf(free, initial_value, whole, begin, rows, where);
  const Variable part = MakeVariable(scope, StrCat(name, "/part_", i), value, options, where);
  if (!part.handle.valid()) return part;
  const std::string device = part.handle.op().device();
  for (int id = first; id < last && !device.empty(); ++id) {
    if (Node* const node = graph.node(id); node != nullptr) node->set_requested_device(device);
  }
  return part;
}

// Says of the i-th part of which whole it is (part_marks.h): its name without "/part_<i>".
void MarkIt(const Variable& part, int64_t i, const Shape& whole, int64_t begin, int64_t rows) {
  if (!part.handle.valid()) return;
  std::string name = part.name();
  const std::string number = StrCat("/part_", i);
  const std::size_t at = name.rfind(number);
  if (at == std::string::npos) return;
  name.erase(at, number.size());
  MarkPart(part, {std::move(name), SliceOf(whole, begin, rows)});
}

// Parts in order; nothing if they are not all of a variable.
std::optional<ShardedVariable> Joined(const std::string& name, std::span<const Variable> parts) {
  ShardedVariable whole{.name = name, .shape = {}, .parts = {}};
  int64_t rows = 0;
  for (const Variable& part : parts) {
    const auto shape = part.shape().AsShape();
    if (!shape || shape->rank() == 0) return std::nullopt;
    whole.parts.push_back({part, rows, shape->dim(0)});
    rows += shape->dim(0);
    whole.shape = *shape;
  }
  std::vector<int64_t> dims(whole.shape.dims().begin(), whole.shape.dims().end());
  dims[0] = rows;
  whole.shape = Shape(dims);
  for (const VariablePart& part : whole.parts) {
    if (MarkOf(part.variable)->slice != SliceOf(whole.shape, part.begin, part.rows)) {
      return std::nullopt;
    }
  }
  return whole;
}

}  // namespace

ShardedVariable MakeShardedVariable(const Scope& scope, std::string_view name,
                                    const Output& initial_value, const Partitioner& partitioner,
                                    const VariableOptions& options, std::source_location where) {
  ShardedVariable made;
  made.name = name;
  if (!initial_value.valid()) return made;
  const auto shape = InitialShape(scope, name, initial_value, where);
  if (!shape) return made;
  made.shape = *shape;
  const StatusOr<int64_t> count =
      CountParts(name, *shape, BaseType(initial_value.dtype()), partitioner);
  if (!count.ok()) {
    scope.RecordError(count.status(), where);
    return made;
  }
  VariableOptions part_options = options;
  part_options.use_resource = true;
  if (*count == 1) {
    const int64_t rows = shape->rank() == 0 ? 1 : shape->dim(0);
    made.parts.push_back({MakeVariable(scope, name, initial_value, part_options, where), 0, rows});
    return made;
  }
  const int64_t base = shape->dim(0) / *count, extra = shape->dim(0) % *count;
  int64_t begin = 0;
  for (int64_t i = 0; i < *count; ++i) {
    const int64_t rows = base + (i < extra ? 1 : 0);
    made.parts.push_back(
        {MakePart(scope, name, i, initial_value, *shape, begin, rows, part_options, where), begin,
         rows});
    MarkIt(made.parts.back().variable, i, *shape, begin, rows);
    begin += rows;
  }
  return made;
}

std::vector<ShardedVariable> JoinParts(std::span<const Variable> variables) {
  std::map<std::string, std::vector<Variable>> parts;  // by the name of the whole
  for (const Variable& v : variables) {
    if (const auto mark = MarkOf(v)) parts[mark->whole].push_back(v);
  }
  std::map<std::string, ShardedVariable> wholes;
  for (const auto& [name, of_whole] : parts) {
    if (auto whole = Joined(name, of_whole)) wholes.emplace(name, *std::move(whole));
  }
  std::vector<ShardedVariable> joined;
  for (const Variable& v : variables) {
    const auto mark = MarkOf(v);
    const auto whole = mark ? wholes.find(mark->whole) : wholes.end();
    if (whole == wholes.end()) {
      const Shape shape = v.shape().AsShape().value_or(Shape());
      joined.push_back({v.name(), shape, {{v, 0, shape.rank() == 0 ? 1 : shape.dim(0)}}});
    } else if (whole->second.parts[0].variable.handle == v.handle) {
      joined.push_back(whole->second);
    }
  }
  return joined;
}

Output HashedRows(const Scope& scope, const Output& ids, int64_t rows, std::source_location where) {
  // Products of two numbers below it are numbers.
  constexpr int64_t kMostRows = int64_t{1} << 31;
  if (!ids.valid()) return Output();
  if (rows < 1 || rows > kMostRows) {
    scope.RecordError(errors::InvalidArgument("HashedRows is for tables of 1 to ", kMostRows,
                                              " rows, not ", rows),
                      where);
    return Output();
  }
  // Knuth's multiplicative hashing: steps of the golden section hit all rows, and those of any run
  // of numbers lie as far apart as they can.
  auto factor = static_cast<int64_t>(0.6180339887498949 * static_cast<double>(rows));
  while (std::gcd(std::max<int64_t>(factor, 1), rows) != 1) ++factor;
  factor = std::max<int64_t>(factor, 1);
  Output wide = ids;
  if (ids.dtype() != kInt64) wide = ops::Cast(scope, ids, kInt64, {}, where);
  // What is no row of the table is none afterwards.
  const Output is_row =
      ops::LogicalAnd(scope, ops::GreaterEqual(scope, wide, Tensor::Scalar<int64_t>(0), where),
                      ops::Less(scope, wide, Tensor::Scalar<int64_t>(rows), where), where);
  const Output known = ops::SelectV2(scope, is_row, wide, ops::ZerosLike(scope, wide), where);
  const Output product = ops::Mul(scope, known, Tensor::Scalar<int64_t>(factor), where);
  const Output row = ops::FloorMod(scope, product, Tensor::Scalar<int64_t>(rows), where);
  return ops::SelectV2(scope, is_row, row, wide, where);
}

Output ReadSharded(const Scope& scope, const ShardedVariable& variable,
                   std::source_location where) {
  std::vector<Input> values;
  for (const VariablePart& part : variable.parts) {
    if (!part.variable.handle.valid()) return Output();
    values.push_back(ops::ReadVariableOp(scope.WithDevice(part.variable.handle.op().device()),
                                         part.variable.handle, part.variable.dtype(), where));
  }
  if (values.empty()) return Output();
  if (values.size() == 1) return values[0].output();
  return ops::ConcatV2(scope, values, 0, where);
}

Operation AssignSharded(const Scope& scope, const ShardedVariable& variable, const Output& value,
                        std::source_location where) {
  if (variable.parts.empty()) return Operation();
  if (variable.parts.size() == 1) return Assign(scope, variable.parts[0].variable, value, where);
  std::vector<Operation> assigned;
  for (const VariablePart& part : variable.parts) {
    const Output rows = RowsOf(scope, value, variable.shape, part.begin, part.rows, where);
    assigned.push_back(Assign(scope, part.variable, rows, where));
  }
  return Group(scope, assigned, where);
}

Output LookupSharded(const Scope& scope, const ShardedVariable& variable, const Output& ids,
                     std::source_location where) {
  if (variable.parts.empty() || !ids.valid()) return Output();
  const auto gather = [&](const VariablePart& part, const Output& rows) {
    const Output& handle = part.variable.handle;
    return ops::ResourceGather(scope.WithDevice(handle.op().device()), handle, rows,
                               part.variable.dtype(), {}, where);
  };
  if (variable.parts.size() == 1) return gather(variable.parts[0], ids);
  const int count = static_cast<int>(variable.parts.size());
  const Output flat = AsVectorOfInt64(scope, ids, where);
  const Places places = PlacesOf(scope, variable, flat, where);
  const Output number = ops::Range(scope, 0, ops::Size(scope, flat, {}, where), 1, where);
  const std::vector<Output> rows =
      ops::DynamicPartition(scope, places.row, places.part, count, where);
  const std::vector<Output> back = ops::DynamicPartition(scope, number, places.part, count, where);
  if (rows.size() != variable.parts.size() || back.size() != rows.size()) return Output();
  std::vector<Input> indices, found;
  for (int i = 0; i < count; ++i) {
    indices.push_back(back[i]);
    found.push_back(gather(variable.parts[i], rows[i]));
  }
  const Output stitched = ops::DynamicStitch(scope, indices, found, where);
  std::vector<int64_t> row_dims(variable.shape.dims().begin() + 1, variable.shape.dims().end());
  const Output shape = ops::ConcatV2(
      scope,
      {ops::Cast(scope, ops::Shape(scope, ids, {}, where), kInt64, {}, where), Numbers(row_dims)},
      0, where);
  const Output found_rows = ops::Reshape(scope, stitched, shape, where);
  const PartialShape of_ids = ids.shape();
  if (!of_ids.has_rank()) return found_rows;
  std::vector<int64_t> dims(of_ids.dims().begin(), of_ids.dims().end());
  dims.insert(dims.end(), row_dims.begin(), row_dims.end());
  return ops::EnsureShape(scope, found_rows, PartialShape(dims), where);
}

Operation ScatterAddSharded(const Scope& scope, const ShardedVariable& variable, const Output& ids,
                            const Output& updates, std::source_location where) {
  if (variable.parts.empty() || !ids.valid() || !updates.valid()) return Operation();
  const auto add = [&](const VariablePart& part, const Output& rows, const Output& values) {
    const Output& handle = part.variable.handle;
    return ops::ResourceScatterAdd(scope.WithDevice(handle.op().device()), handle, rows, values,
                                   where);
  };
  if (variable.parts.size() == 1) return add(variable.parts[0], ids, updates);
  const int count = static_cast<int>(variable.parts.size());
  const Output flat = AsVectorOfInt64(scope, ids, where);
  const Places places = PlacesOf(scope, variable, flat, where);
  const std::vector<Output> rows =
      ops::DynamicPartition(scope, places.row, places.part, count, where);
  const std::vector<Output> values =
      ops::DynamicPartition(scope, updates, places.part, count, where);
  if (rows.size() != variable.parts.size() || values.size() != rows.size()) return Operation();
  std::vector<Operation> added;
  for (int i = 0; i < count; ++i) added.push_back(add(variable.parts[i], rows[i], values[i]));
  return Group(scope, added, where);
}

}  // namespace millrace
