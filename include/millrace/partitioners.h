// SPDX-License-Identifier: Apache-2.0
// Variables that are too big, or too much asked for, to be on one parameter server: into how many
// parts they are cut, and what is done with the parts together.
#ifndef MILLRACE_PARTITIONERS_H_
#define MILLRACE_PARTITIONERS_H_

#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph.h"
#include "millrace/status.h"
#include "millrace/variables.h"

namespace millrace {

class Trackable;  // millrace/checkpoint.h

// The number of parts along each axis: 1 but along `axis`. InvalidArgument if the shape has no such
// axis, or an argument of the partitioner is not positive.
using Partitioner =
    std::function<StatusOr<std::vector<int64_t>>(const Shape& shape, DataType dtype, int axis)>;

// So many parts, but no more than there are rows.
Partitioner FixedShards(int64_t num_shards);

// Of MinSize; all must be positive.
struct MinSizeOptions {
  int64_t min_shard_bytes = 256 << 10;  // size that is worth a part
  int64_t max_shards = 1;               // most parts: usually the number of parameter servers
  int64_t bytes_per_string = 16;        // what an element of a string variable counts
};
// As many parts, up to max_shards, as min_shard_bytes goes into the variable, a rest counted as
// one: a part may be smaller than that.
Partitioner MinSize(const MinSizeOptions& options);

// Of MaxSize.
struct MaxSizeOptions {
  int64_t max_shard_bytes = 0;    // most bytes of a part; must be set to a positive number
  int64_t max_shards = 0;         // 0: any number
  int64_t bytes_per_string = 16;  // what an element of a string variable counts
};
// As few parts as have at most max_shard_bytes each, but at least a row. InvalidArgument for a
// variable without elements.
Partitioner MaxSize(const MaxSizeOptions& options);

// For models' layers: what the partitioner says of tables is to be so of every weight that is
// trained, kernels and biases too. Steps read such weights as a whole, and what an optimizer keeps
// for them is cut alike. Without it layers cut tables alone.
Partitioner AllWeights(Partitioner partitioner);
// Whether it is one of AllWeights.
bool IsForAllWeights(const Partitioner& partitioner);

// One part of a variable: rows [begin, begin + rows).
struct VariablePart {
  Variable variable;  // "<name>/part_<i>"
  int64_t begin = 0;  // first row, counted in the whole variable
  int64_t rows = 0;   // how many rows
};

// A variable in parts along axis 0. The first rows % parts of them have one row more than the rest.
// A value; valid as long as its graph.
struct ShardedVariable {
  std::string name;                 // as given to MakeShardedVariable
  Shape shape;                      // of all rows
  std::vector<VariablePart> parts;  // in order of rows
};

// Makes the parts, each with its rows of `initial_value`; a scope with ReplicaDeviceSetter puts
// them on one parameter server after the other. The rows are computed there if the value is what an
// initializer makes that draws each number by itself, or a constant; else as a whole. The parts are
// resource variables in the collections of `options`. One part without the suffix "/part_0", as
// MakeVariable makes it, if the partitioner says 1 or the value has no axis. In the graph's status:
// InvalidArgument for a shape that is not fully known, and what the partitioner returns.
ShardedVariable MakeShardedVariable(const Scope& scope, std::string_view name,
                                    const Output& initial_value, const Partitioner& partitioner,
                                    const VariableOptions& options = {},
                                    std::source_location where = std::source_location::current());

// The variables of a list, each in as many parts as it has there: what MakeShardedVariable has cut,
// and what optimizers keep for its parts, is joined at the place of its first part, under the name
// that it has in a program without parts; every other variable is its own only part.
std::vector<ShardedVariable> JoinParts(std::span<const Variable> variables);

// All rows.
Output ReadSharded(const Scope& scope, const ShardedVariable& variable,
                   std::source_location where = std::source_location::current());
// Each part gets its rows of `value`, whose shape is the variable's.
Operation AssignSharded(const Scope& scope, const ShardedVariable& variable, const Output& value,
                        std::source_location where = std::source_location::current());
// The rows `ids` (int32 or int64, any shape): shape of ids + shape of a row. Ids are grouped by
// part and looked up where the part is: what travels is the rows that were asked for. A gradient
// reaches the parts as rows, too. An id that is no row is an InvalidArgument of the step.
Output LookupSharded(const Scope& scope, const ShardedVariable& variable, const Output& ids,
                     std::source_location where = std::source_location::current());
// The rows of numbers in a table of `rows` rows (2^31 at most) whose order is that of a hash of the
// numbers: another row for each, and of neighbours rows of other parts, so that numbers that are
// asked for together, or most often, are spread over all parts. int64, of the shape of `ids`; what
// is below 0 or not below `rows` stays as it is. LookupSharded takes them.
Output HashedRows(const Scope& scope, const Output& ids, int64_t rows,
                  std::source_location where = std::source_location::current());
// Adds rows of `updates` to the rows `ids` (a vector; equal ids add up).
Operation ScatterAddSharded(const Scope& scope, const ShardedVariable& variable, const Output& ids,
                            const Output& updates,
                            std::source_location where = std::source_location::current());

// As an object of a Checkpoint: one tensor under one key, of which each part is a slice, and which
// any other number of parts restores, a variable that is not in parts too. What an optimizer keeps
// for the parts (Trackable::Of, which is given them as variables) is stored in the same way.
Trackable TrackableOf(const ShardedVariable& variable);

}  // namespace millrace

#endif  // MILLRACE_PARTITIONERS_H_
