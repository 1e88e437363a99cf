// SPDX-License-Identifier: Apache-2.0
// Stages that call a function for each element.
#include <memory>
#include <utility>

#include "base/errors.h"
#include "base/strings.h"
#include "data/pipeline/stage.h"

namespace millrace {
namespace {

using Where = std::source_location;

// Adds an op that takes a function, its captures, and what comes behind those.
Output AddFunctionOp(StagePlace& place, std::string_view op, const char* attr,
                     const FunctionBuilder& f, std::vector<std::vector<Input>> behind,
                     NamedAttrs attrs) {
  std::vector<std::vector<Input>> args;
  const std::string name = place.stage.text.substr(0, place.stage.text.find('('));
  if (!AddFunction(place, name, ArgsOf(place.stage.inputs[0]), f, attr, "Targuments", &args,
                   &attrs)) {
    return Output();
  }
  for (std::vector<Input>& arg : behind) args.push_back(std::move(arg));
  return AddTypedOp(place, op, std::move(args), std::move(attrs));
}

DatasetStage FunctionStage(const Dataset& input, std::string op, std::string text, Where where) {
  DatasetStage stage;
  stage.op = std::move(op);
  stage.text = std::move(text);
  stage.inputs = {input};
  stage.where = where;
  return stage;
}

Status CheckParallel(int64_t calls) {
  if (calls > 0 || calls == kAutotune) return OkStatus();
  return errors::InvalidArgument("num_parallel is ", calls,
                                 "; it must be at least 1, or kAutotune");
}

// Filter and TakeWhile.
Dataset WithPredicate(const Dataset& input, const char* op, const char* text,
                      const ElementPredicate& f, Where where,
                      std::function<Dataset(const std::vector<Dataset>&)> remake) {
  if (!input.status().ok()) return input;
  if (!f) return FailedDataset(errors::InvalidArgument(text, " has no predicate"), where);
  const FunctionBuilder body = [f](const Scope& scope, std::span<const Output> element) {
    return std::vector<Output>{f(scope, element)};
  };
  const StatusOr<FunctionResults> results = TryFunction(text, ArgsOf(input), body, where);
  if (!results.ok()) return FailedDataset(results.status(), where);
  if (results->dtypes[0] != kBool || !results->shapes[0].IsCompatibleWith(PartialShape({}))) {
    return FailedDataset(errors::InvalidArgument(
                             "the predicate of ", text, " gives ", DataTypeName(results->dtypes[0]),
                             " ", results->shapes[0].DebugString(), "; it must give one bool"),
                         where);
  }
  DatasetStage stage = FunctionStage(input, op, text, where);
  stage.dtypes = input.dtypes();
  stage.shapes = input.shapes();
  stage.add = [body](StagePlace& place) {
    return AddFunctionOp(place, place.stage.op, "predicate", body, {}, {});
  };
  stage.remake = std::move(remake);
  return NewDataset(std::move(stage));
}

// Map; with `advice` as MapFiles says.
Dataset MapElements(const Dataset& input, const ElementFunction& f, const MapOptions& options,
                    const std::string& advice, Where where) {
  if (!input.status().ok()) return input;
  if (const Status ok = CheckParallel(options.num_parallel); !ok.ok()) {
    return FailedDataset(input, ok, where);
  }
  const StatusOr<FunctionResults> results = TryFunction("Map", ArgsOf(input), f, where);
  if (!results.ok()) return FailedDataset(input, results.status(), where);
  if (results->dtypes.empty()) {
    return FailedDataset(input, errors::InvalidArgument("the function of Map gives no components"),
                         where);
  }
  const bool parallel = options.num_parallel != 1;
  DatasetStage stage =
      FunctionStage(input, parallel ? "ParallelMapDatasetV2" : "MapDataset", "Map", where);
  stage.dtypes = results->dtypes;
  stage.shapes = results->shapes;
  stage.cardinality = input.cardinality();
  stage.add = [f, options, advice, parallel](StagePlace& place) {
    std::vector<std::vector<Input>> behind;
    NamedAttrs attrs = {{"preserve_cardinality", true}};
    if (parallel) {
      behind.push_back({options.num_parallel});
      attrs.emplace_back("deterministic", options.deterministic ? "true" : "false");
    }
    if (!advice.empty()) attrs.emplace_back("_element_advice", advice);
    return AddFunctionOp(place, place.stage.op, "f", f, std::move(behind), std::move(attrs));
  };
  stage.remake = [f, options, advice, where](const std::vector<Dataset>& inputs) {
    return MapElements(inputs[0], f, options, advice, where);
  };
  return NewDataset(std::move(stage));
}

// FlatMap and Interleave: `stage` without the types, `behind` what follows the captures.
Dataset WithDatasets(DatasetStage stage, const ElementDataset& f,
                     std::vector<std::vector<Input>> behind, NamedAttrs attrs) {
  const Dataset input = stage.inputs[0];
  const Where where = stage.where;
  if (!input.status().ok()) return input;
  if (!f) return FailedDataset(errors::InvalidArgument(stage.text, " has no function"), where);
  const auto given = std::make_shared<Dataset>();  // what the trial gave
  const auto body = [](const ElementDataset& f, Dataset* given, Where where) {
    return [f, given, where](const Scope& scope, std::span<const Output> element) {
      const Dataset inner = f(scope, element);
      if (given != nullptr) *given = inner;
      return std::vector<Output>{inner.AddTo(scope, where)};
    };
  };
  const StatusOr<FunctionResults> results =
      TryFunction(stage.text, ArgsOf(input), body(f, given.get(), where), where);
  if (!results.ok()) return FailedDataset(results.status(), where);
  stage.dtypes = given->dtypes();
  stage.shapes = given->shapes();
  stage.cardinality = Dataset::kUnknown;
  stage.inner = given;
  stage.add = [body = body(f, nullptr, where), behind = std::move(behind),
               attrs = std::move(attrs)](StagePlace& place) {
    return AddFunctionOp(place, place.stage.op, "f", body, behind, attrs);
  };
  return NewDataset(std::move(stage));
}

}  // namespace

Dataset Dataset::Map(const ElementFunction& f, const MapOptions& options, Here where) const {
  return MapElements(*this, f, options, "", where);
}

Dataset MapFiles(const Dataset& names, const ElementFunction& f, const MapOptions& options,
                 const std::string& advice, std::source_location where) {
  return MapElements(names, f, options, advice, where);
}

Dataset Dataset::Filter(const ElementPredicate& f, Here where) const {
  return WithPredicate(
      *this, "FilterDataset", "Filter", f, where,
      [f, where](const std::vector<Dataset>& inputs) { return inputs[0].Filter(f, where); });
}

Dataset Dataset::TakeWhile(const ElementPredicate& f, Here where) const {
  return WithPredicate(
      *this, "TakeWhileDataset", "TakeWhile", f, where,
      [f, where](const std::vector<Dataset>& inputs) { return inputs[0].TakeWhile(f, where); });
}

Dataset Dataset::FlatMap(const ElementDataset& f, Here where) const {
  DatasetStage stage = FunctionStage(*this, "FlatMapDataset", "FlatMap", where);
  stage.remake = [f, where](const std::vector<Dataset>& inputs) {
    return inputs[0].FlatMap(f, where);
  };
  return WithDatasets(std::move(stage), f, {}, {});
}

Dataset Dataset::Interleave(const ElementDataset& f, const InterleaveOptions& options,
                            Here where) const {
  if (const Status ok = CheckParallel(options.num_parallel); !ok.ok()) {
    return FailedDataset(*this, ok, where);
  }
  const int64_t cycle = options.cycle_length, block = options.block_length;
  if ((cycle <= 0 && cycle != kAutotune) || block <= 0) {
    return FailedDataset(*this,
                         errors::InvalidArgument("Interleave of ", cycle, " data sets at a time, ",
                                                 block, " elements each: both must be at least 1"),
                         where);
  }
  const bool parallel = options.num_parallel != 1;
  DatasetStage stage =
      FunctionStage(*this, parallel ? "ParallelInterleaveDatasetV4" : "InterleaveDataset",
                    StrCat("Interleave(", cycle, ", ", block, ")"), where);
  stage.remake = [f, options, where](const std::vector<Dataset>& inputs) {
    return inputs[0].Interleave(f, options, where);
  };
  std::vector<std::vector<Input>> behind = {{cycle}, {block}};
  NamedAttrs attrs;
  if (parallel) {
    behind.push_back({kAutotune});  // buffered outputs
    behind.push_back({kAutotune});  // prefetched inputs
    behind.push_back({options.num_parallel});
    attrs.emplace_back("deterministic", "true");
  }
  return WithDatasets(std::move(stage), f, std::move(behind), std::move(attrs));
}

}  // namespace millrace
