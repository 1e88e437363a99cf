// SPDX-License-Identifier: Apache-2.0
// Stages that take elements from several data sets, or group those of one.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "base/strings.h"
#include "data/pipeline/stage.h"

namespace millrace {
namespace {

using Where = std::source_location;

// InvalidArgument unless all inputs have components of the same types.
Status CheckAlike(const std::vector<Dataset>& inputs, const char* stage) {
  if (inputs.empty()) return errors::InvalidArgument(stage, " needs at least one data set");
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    if (!inputs[0].status().ok() || !inputs[i].status().ok()) continue;  // passed on as it is
    if (inputs[i].dtypes() == inputs[0].dtypes()) continue;
    return errors::InvalidArgument("data set ", i, " of ", stage,
                                   " has components of other types than data set 0");
  }
  return OkStatus();
}

// The number of elements if every data set is read to its end, or kUnknown.
int64_t SumOf(const std::vector<Dataset>& inputs) {
  int64_t sum = 0;
  for (const Dataset& input : inputs) {
    const int64_t n = input.cardinality();
    if (n == Dataset::kInfinite) return Dataset::kInfinite;
    if (n == Dataset::kUnknown || sum == Dataset::kUnknown ||
        __builtin_add_overflow(sum, n, &sum)) {
      sum = Dataset::kUnknown;
    }
  }
  return sum;
}

// Endless pairs of random numbers: an int64 vector of two.
Dataset RandomSeeds(int64_t seed, Where where) {
  DatasetStage stage;
  stage.op = "RandomDataset";
  stage.text = "Random";
  stage.dtypes = {kInt64};
  stage.shapes = {PartialShape({})};
  stage.cardinality = Dataset::kInfinite;
  stage.where = where;
  stage.add = [seed](StagePlace& place) {
    const auto [first, second] = DatasetSeeds(place.scope, seed);
    return AddTypedOp(place, "RandomDataset", {{first}, {second}});
  };
  stage.remake = [seed, where](const std::vector<Dataset>&) { return RandomSeeds(seed, where); };
  if (seed == 0) {
    stage.seeded = [where](const std::vector<Dataset>&, int64_t chosen) {
      return RandomSeeds(chosen, where);
    };
  }
  return NewDataset(std::move(stage)).Batch(2, {}, where);
}

Status CheckWeights(const std::vector<double>& weights, std::size_t inputs) {
  if (weights.empty()) return OkStatus();
  if (weights.size() != inputs) {
    return errors::InvalidArgument("SampleFrom has ", weights.size(), " weights for ", inputs,
                                   " data sets");
  }
  double sum = 0;
  for (const double weight : weights) {
    if (!std::isfinite(weight) || weight < 0) {
      return errors::InvalidArgument("a weight of SampleFrom is ", weight,
                                     "; weights are 0 or more, and finite");
    }
    sum += weight;
  }
  if (sum > 0) return OkStatus();
  return errors::InvalidArgument("all weights of SampleFrom are 0");
}

Status CheckBuckets(const Dataset& input, const std::vector<int64_t>& boundaries,
                    const std::vector<int64_t>& sizes, bool drop_remainder) {
  if (boundaries.empty() || sizes.size() != boundaries.size() + 1) {
    return errors::InvalidArgument("BucketByLength has ", boundaries.size(), " boundaries and ",
                                   sizes.size(),
                                   " batch sizes; it needs at least one boundary and one size more "
                                   "than boundaries");
  }
  if (!std::is_sorted(boundaries.begin(), boundaries.end(), std::less_equal<>())) {
    return errors::InvalidArgument("the boundaries of BucketByLength must ascend");
  }
  if (const auto bad = std::find_if(sizes.begin(), sizes.end(), [](int64_t n) { return n < 1; });
      bad != sizes.end()) {
    return errors::InvalidArgument("a batch size of BucketByLength is ", *bad,
                                   "; it must be at least 1");
  }
  if (drop_remainder &&
      std::adjacent_find(sizes.begin(), sizes.end(), std::not_equal_to<>()) != sizes.end()) {
    return errors::InvalidArgument(
        "BucketByLength drops remainders only if all buckets have one batch size");
  }
  return input.status();
}

Tensor Int64s(const std::vector<int64_t>& values) {
  return Tensor::FromValues<int64_t>(values, Shape({static_cast<int64_t>(values.size())}));
}

// The functions of GroupByWindow that BucketByLength is made of.
struct Buckets {
  FunctionBuilder key, reduce, window_size;
};

Buckets BucketFunctions(const Dataset& input, const ElementNumber& length,
                        const std::vector<int64_t>& boundaries, const std::vector<int64_t>& sizes,
                        const PaddedBatchOptions& options, Where where) {
  Buckets buckets;
  // The number of boundaries that the length reaches.
  buckets.key = [=](const Scope& scope, std::span<const Output> element) {
    const Output n =
        scope.AddOp("Cast", std::vector<Input>{length(scope, element)}, {{"DstT", kInt64}}, where)
            .output(0);
    const Output reached =
        scope.AddOp("GreaterEqual", std::vector<Input>{n, Int64s(boundaries)}, {}, where).output(0);
    const Output ones =
        scope.AddOp("Cast", std::vector<Input>{reached}, {{"DstT", kInt64}}, where).output(0);
    return std::vector<Output>{
        scope.AddOp("Sum", std::vector<Input>{ones, Tensor::Scalar<int32_t>(0)}, {}, where)
            .output(0)};
  };
  buckets.window_size = [=](const Scope& scope, std::span<const Output> key) {
    return std::vector<Output>{
        scope
            .AddOp("GatherV2",
                   std::vector<Input>{Int64s(sizes), key[0], Tensor::Scalar<int32_t>(0)}, {}, where)
            .output(0)};
  };
  // A window has no more elements than its bucket's batch: a larger size makes one batch of it.
  const int64_t most = *std::max_element(sizes.begin(), sizes.end());
  buckets.reduce = [=, dtypes = input.dtypes(), shapes = input.shapes()](
                       const Scope& scope, std::span<const Output> args) {
    const Dataset batch =
        FromVariant(args[1], dtypes, shapes, where).PaddedBatch(most, options, where);
    return std::vector<Output>{batch.AddTo(scope, where)};
  };
  return buckets;
}

Output AddBuckets(StagePlace& place, const Buckets& buckets) {
  const std::vector<FunctionArg> key = {{kInt64, PartialShape({}), ""}};
  const std::vector<FunctionArg> window = {{kInt64, PartialShape({}), ""},
                                           {kVariant, PartialShape({}), ""}};
  const struct {
    const char *attr, *types;
    const FunctionBuilder& function;
    const std::vector<FunctionArg> args;
  } functions[] = {
      {"key_func", "Tkey_func_other_arguments", buckets.key, ArgsOf(place.stage.inputs[0])},
      {"reduce_func", "Treduce_func_other_arguments", buckets.reduce, window},
      {"window_size_func", "Twindow_size_func_other_arguments", buckets.window_size, key},
  };
  std::vector<std::vector<Input>> captured;
  NamedAttrs attrs;
  for (const auto& [attr, types_attr, builder, args] : functions) {
    if (!AddFunction(place, attr, args, builder, attr, types_attr, &captured, &attrs)) {
      return Output();
    }
  }
  return AddTypedOp(place, "GroupByWindowDataset", std::move(captured), std::move(attrs));
}

}  // namespace

Dataset Dataset::ChooseFrom(const Dataset& choices, std::vector<Dataset> inputs,
                            const ChooseOptions& options, Here where) {
  if (const Status ok = CheckAlike(inputs, "ChooseFrom"); !ok.ok()) return FailedDataset(ok, where);
  if (choices.status().ok() && (choices.dtypes() != std::vector<DataType>{kInt64} ||
                                !choices.shapes()[0].IsCompatibleWith(PartialShape({})))) {
    return FailedDataset(
        errors::InvalidArgument("the choices of ChooseFrom must be int64 scalars: numbers of data "
                                "sets, from 0"),
        where);
  }
  DatasetStage stage;
  stage.op = "DirectedInterleaveDataset";
  stage.text = "ChooseFrom";
  stage.dtypes = inputs[0].dtypes();
  stage.shapes = inputs[0].shapes();
  for (const Dataset& input : inputs) stage.shapes = CommonShapes(stage.shapes, input.shapes());
  stage.inputs = {choices};
  stage.inputs.insert(stage.inputs.end(), inputs.begin(), inputs.end());
  stage.where = where;
  stage.add = [stop = options.stop_on_empty](StagePlace& place) {
    const Input selector = place.inputs[0];
    std::vector<Input> data(place.inputs.begin() + 1, place.inputs.end());
    place.inputs.clear();
    return AddTypedOp(place, "DirectedInterleaveDataset", {{selector}, std::move(data)},
                      {{"stop_on_empty_dataset", stop}});
  };
  stage.remake = [options, where](const std::vector<Dataset>& others) {
    return ChooseFrom(others[0], {others.begin() + 1, others.end()}, options, where);
  };
  return NewDataset(std::move(stage));
}

Dataset Dataset::SampleFrom(std::vector<Dataset> inputs, const SampleOptions& options, Here where) {
  Status ok = CheckAlike(inputs, "SampleFrom");
  if (ok.ok()) ok = CheckWeights(options.weights, inputs.size());
  if (!ok.ok()) return FailedDataset(ok, where);
  std::vector<double> logits;
  std::vector<Dataset> kept;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const double weight = options.weights.empty() ? 1.0 : options.weights[i];
    if (weight == 0) continue;
    logits.push_back(std::log(weight));
    kept.push_back(inputs[i]);
  }
  if (kept.size() == 1) return kept[0];
  const Tensor table =
      Tensor::FromValues<double>(logits, Shape({1, static_cast<int64_t>(logits.size())}));
  const ElementFunction draw = [table, where](const Scope& scope, std::span<const Output> seeds) {
    const Output drawn = scope
                             .AddOp("StatelessMultinomial",
                                    std::vector<Input>{table, Tensor::Scalar<int32_t>(1), seeds[0]},
                                    {{"output_dtype", kInt64}}, where)
                             .output(0);
    return std::vector<Output>{
        scope
            .AddOp("Reshape",
                   std::vector<Input>{drawn, Tensor::FromValues<int32_t>({}, Shape({0}))}, {},
                   where)
            .output(0)};
  };
  const Dataset choices = RandomSeeds(options.seed, where).Map(draw, {}, where);
  const Dataset mixed = ChooseFrom(choices, kept, {.stop_on_empty = options.stop_on_empty}, where);
  if (!mixed.status().ok()) return mixed;
  DatasetStage stage = *mixed.stage();
  stage.text = "SampleFrom";
  if (!options.stop_on_empty) stage.cardinality = SumOf(kept);
  return NewDataset(std::move(stage));
}

Dataset Dataset::BucketByLength(const ElementNumber& length, const std::vector<int64_t>& boundaries,
                                const std::vector<int64_t>& batch_sizes,
                                const PaddedBatchOptions& options, Here where) const {
  if (!length) {
    return FailedDataset(*this, errors::InvalidArgument("BucketByLength has no function"), where);
  }
  const Status ok = CheckBuckets(*this, boundaries, batch_sizes, options.drop_remainder);
  if (!ok.ok()) return FailedDataset(*this, ok, where);
  // What the length of an element is, and what a batch looks like, is tried once.
  const FunctionBuilder measure = [&length](const Scope& scope, std::span<const Output> element) {
    return std::vector<Output>{length(scope, element)};
  };
  const StatusOr<FunctionResults> tried =
      TryFunction("BucketByLength", ArgsOf(*this), measure, where);
  if (!tried.ok()) return FailedDataset(*this, tried.status(), where);
  if ((tried->dtypes[0] != kInt32 && tried->dtypes[0] != kInt64) ||
      !tried->shapes[0].IsCompatibleWith(PartialShape({}))) {
    return FailedDataset(
        *this,
        errors::InvalidArgument("the length that BucketByLength goes by is ",
                                DataTypeName(tried->dtypes[0]), " ", tried->shapes[0].DebugString(),
                                "; it must be one int32 or int64"),
        where);
  }
  const Dataset batch = PaddedBatch(batch_sizes[0], options, where);
  if (!batch.status().ok()) return batch;
  DatasetStage stage;
  stage.op = "GroupByWindowDataset";
  stage.text = StrCat("BucketByLength(", batch_sizes.size(), " buckets)");
  stage.inputs = {*this};
  stage.dtypes = batch.dtypes();
  stage.shapes = batch.shapes();
  stage.where = where;
  stage.add = [buckets = BucketFunctions(*this, length, boundaries, batch_sizes, options, where)](
                  StagePlace& place) { return AddBuckets(place, buckets); };
  stage.remake = [=](const std::vector<Dataset>& inputs) {
    return inputs[0].BucketByLength(length, boundaries, batch_sizes, options, where);
  };
  return NewDataset(std::move(stage));
}

}  // namespace millrace
