// SPDX-License-Identifier: Apache-2.0
// Stages that leave elements as they are: fewer, more, in another order, or several data sets.
#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/strings.h"
#include "data/pipeline/stage.h"
#include "frontend/graph_builder.h"

namespace millrace {
namespace {

using Where = std::source_location;
constexpr int64_t kInfinite = Dataset::kInfinite, kUnknown = Dataset::kUnknown;

// A stage that gives elements of the types and shapes of `input`.
DatasetStage Like(const Dataset& input, std::string op, std::string text, int64_t cardinality,
                  Where where) {
  DatasetStage stage;
  stage.op = std::move(op);
  stage.text = std::move(text);
  stage.inputs = {input};
  stage.dtypes = input.dtypes();
  stage.shapes = input.shapes();
  stage.cardinality = cardinality;
  stage.where = where;
  return stage;
}

// One whose op takes a number besides.
Dataset Counted(const Dataset& input, const char* op, std::string text, int64_t count,
                int64_t cardinality, Where where,
                std::function<Dataset(const std::vector<Dataset>&)> remake) {
  DatasetStage stage = Like(input, op, std::move(text), cardinality, where);
  stage.add = [count](StagePlace& place) { return AddTypedOp(place, place.stage.op, {{count}}); };
  stage.remake = std::move(remake);
  return NewDataset(std::move(stage));
}

int64_t Product(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? kUnknown : product;
}

int64_t RepeatedCardinality(int64_t n, int64_t count) {
  if (count == 0 || n == 0) return 0;
  if (count < 0 || n == kInfinite) return kInfinite;
  return n < 0 ? kUnknown : Product(n, count);
}

int64_t TakenCardinality(int64_t n, int64_t count) {
  if (count < 0 || n == kUnknown) return n;
  return n == kInfinite ? count : std::min(n, count);
}

}  // namespace

std::pair<int64_t, int64_t> DatasetSeeds(const Scope& scope, int64_t op_seed) {
  GraphState& graph = *scope.graph();
  if (op_seed == 0 && graph.seed == 0) return {0, 0};
  if (op_seed == 0) return {graph.seed, ++graph.last_op_seed};
  return {graph.seed != 0 ? graph.seed : 87654321, op_seed};
}

Dataset Dataset::Shuffle(int64_t buffer_size, const ShuffleOptions& options, Here where) const {
  if (buffer_size <= 0 && buffer_size != -1) {
    return FailedDataset(*this,
                         errors::InvalidArgument("the buffer of Shuffle has ", buffer_size,
                                                 " elements; it needs at least 1, or -1 for all"),
                         where);
  }
  DatasetStage stage =
      Like(*this, "ShuffleDatasetV3", StrCat("Shuffle(", buffer_size, ")"), cardinality(), where);
  stage.keeps_order = !options.reshuffle_each_iteration;
  stage.add = [buffer_size, options](StagePlace& place) {
    const Output generator = AddStageOp(place, "DummySeedGenerator", {}, {});
    if (!generator.valid()) return Output();
    const auto [seed, seed2] = DatasetSeeds(place.scope, options.seed);
    return AddTypedOp(place, "ShuffleDatasetV3", {{buffer_size}, {seed}, {seed2}, {generator}},
                      {{"reshuffle_each_iteration", options.reshuffle_each_iteration},
                       // What a later initialization makes goes on with the orders of this one, or
                       // keeps the one order that there is without a seed, too.
                       {"_continues", true}});
  };
  stage.remake = [buffer_size, options, where](const std::vector<Dataset>& inputs) {
    return inputs[0].Shuffle(buffer_size, options, where);
  };
  if (options.seed == 0) {
    stage.seeded = [buffer_size, options, where](const std::vector<Dataset>& inputs, int64_t seed) {
      ShuffleOptions chosen = options;
      chosen.seed = seed;
      return inputs[0].Shuffle(buffer_size, chosen, where);
    };
  }
  return NewDataset(std::move(stage));
}

Dataset Dataset::Repeat(int64_t count, Here where) const {
  return Counted(*this, "RepeatDataset", count < 0 ? "Repeat()" : StrCat("Repeat(", count, ")"),
                 count, RepeatedCardinality(cardinality(), count), where,
                 [count, where](const std::vector<Dataset>& inputs) {
                   return inputs[0].Repeat(count, where);
                 });
}

Dataset Dataset::Take(int64_t count, Here where) const {
  return Counted(
      *this, "TakeDataset", StrCat("Take(", count, ")"), count,
      TakenCardinality(cardinality(), count), where,
      [count, where](const std::vector<Dataset>& inputs) { return inputs[0].Take(count, where); });
}

Dataset Dataset::Skip(int64_t count, Here where) const {
  const int64_t n = cardinality();
  const int64_t left = count < 0 ? 0 : n < 0 ? n : std::max<int64_t>(n - count, 0);
  return Counted(
      *this, "SkipDataset", StrCat("Skip(", count, ")"), count, left, where,
      [count, where](const std::vector<Dataset>& inputs) { return inputs[0].Skip(count, where); });
}

Dataset Dataset::Shard(int64_t num_shards, int64_t index, Here where) const {
  const bool is_hint = num_shards == kShardHint && index == kShardHint;
  if (!is_hint && (num_shards <= 0 || index < 0 || index >= num_shards)) {
    return FailedDataset(
        *this,
        errors::InvalidArgument("shard ", index, " of ", num_shards,
                                ": shards are numbered from 0, and there is at ", "least one"),
        where);
  }
  int64_t n = is_hint ? kUnknown : cardinality();
  if (n >= 0) n = n / num_shards + (index < n % num_shards ? 1 : 0);
  DatasetStage stage =
      Like(*this, "ShardDataset", StrCat("Shard(", num_shards, ", ", index, ")"), n, where);
  stage.is_shard_hint = is_hint;
  stage.add = [num_shards, index](StagePlace& place) {
    return AddTypedOp(place, "ShardDataset", {{num_shards}, {index}});
  };
  stage.remake = [num_shards, index, where](const std::vector<Dataset>& inputs) {
    return inputs[0].Shard(num_shards, index, where);
  };
  return NewDataset(std::move(stage));
}

Dataset Dataset::Zip(std::vector<Dataset> inputs, Here where) {
  if (inputs.empty()) {
    return FailedDataset(errors::InvalidArgument("there is nothing to zip"), where);
  }
  DatasetStage stage;
  stage.op = "ZipDataset";
  stage.text = "Zip";
  stage.cardinality = kInfinite;
  for (const Dataset& input : inputs) {
    stage.dtypes.insert(stage.dtypes.end(), input.dtypes().begin(), input.dtypes().end());
    stage.shapes.insert(stage.shapes.end(), input.shapes().begin(), input.shapes().end());
    const int64_t n = input.cardinality();
    if (n == kUnknown || stage.cardinality == kUnknown) {
      stage.cardinality = kUnknown;
    } else if (n != kInfinite) {
      stage.cardinality = stage.cardinality == kInfinite ? n : std::min(stage.cardinality, n);
    }
  }
  stage.inputs = std::move(inputs);
  stage.where = where;
  stage.add = [](StagePlace& place) {
    std::vector<Input> all(place.inputs.begin(), place.inputs.end());
    place.inputs.clear();
    return AddTypedOp(place, "ZipDataset", {std::move(all)});
  };
  stage.remake = [where](const std::vector<Dataset>& others) { return Zip(others, where); };
  return NewDataset(std::move(stage));
}

Dataset Dataset::Concatenate(const Dataset& next, Here where) const {
  if (status().ok() && next.status().ok() && dtypes() != next.dtypes()) {
    return FailedDataset(*this,
                         errors::InvalidArgument("data sets of different components cannot follow "
                                                 "each other: ",
                                                 dtypes().size(), " and ", next.dtypes().size(),
                                                 " of them, or other types"),
                         where);
  }
  const int64_t a = cardinality(), b = next.cardinality();
  int64_t sum = a == kUnknown || b == kUnknown ? kUnknown : a + b;
  if (a == kInfinite || b == kInfinite) sum = kInfinite;
  DatasetStage stage = Like(*this, "ConcatenateDataset", "Concatenate", sum, where);
  stage.inputs.push_back(next);
  stage.shapes = CommonShapes(stage.shapes, next.shapes());
  stage.add = [](StagePlace& place) { return AddTypedOp(place, "ConcatenateDataset", {}); };
  stage.remake = [where](const std::vector<Dataset>& inputs) {
    return inputs[0].Concatenate(inputs[1], where);
  };
  return NewDataset(std::move(stage));
}

Dataset Dataset::Enumerate(int64_t start, Here where) const {
  return Zip({Range(start, INT64_MAX, 1, where), *this}, where);
}

Dataset Dataset::Cache(Here where) const {
  DatasetStage stage = Like(*this, "CacheDatasetV2", "Cache", cardinality(), where);
  stage.add = [](StagePlace& place) {
    const Output cache = AddStageOp(place, "DummyMemoryCache", {}, {});
    if (!cache.valid()) return Output();
    // What depends on the graph may be something else after the next initialization.
    return AddTypedOp(place, "CacheDatasetV2", {{""}, {cache}},
                      {{"_continues", !place.uses_graph}});
  };
  stage.remake = [where](const std::vector<Dataset>& inputs) { return inputs[0].Cache(where); };
  return NewDataset(std::move(stage));
}

Dataset Dataset::Prefetch(int64_t buffer_size, Here where) const {
  if (buffer_size < kAutotune) {
    return FailedDataset(*this,
                         errors::InvalidArgument("the buffer of Prefetch has ", buffer_size,
                                                 " elements; it needs 0 or more, or kAutotune"),
                         where);
  }
  return Counted(*this, "PrefetchDataset", StrCat("Prefetch(", buffer_size, ")"), buffer_size,
                 cardinality(), where, [buffer_size, where](const std::vector<Dataset>& inputs) {
                   return inputs[0].Prefetch(buffer_size, where);
                 });
}

Dataset Dataset::IgnoreErrors(Here where) const {
  DatasetStage stage = Like(*this, "IgnoreErrorsDataset", "IgnoreErrors",
                            cardinality() == kInfinite ? kInfinite : kUnknown, where);
  stage.add = [](StagePlace& place) { return AddTypedOp(place, "IgnoreErrorsDataset", {}); };
  stage.remake = [where](const std::vector<Dataset>& inputs) {
    return inputs[0].IgnoreErrors(where);
  };
  return NewDataset(std::move(stage));
}

Dataset Dataset::AssertCardinality(int64_t count, Here where) const {
  if (count < kUnknown) {
    return FailedDataset(
        *this, errors::InvalidArgument("a data set cannot have ", count, " elements"), where);
  }
  return Counted(*this, "AssertCardinalityDataset", StrCat("AssertCardinality(", count, ")"), count,
                 count, where, [count, where](const std::vector<Dataset>& inputs) {
                   return inputs[0].AssertCardinality(count, where);
                 });
}

}  // namespace millrace
