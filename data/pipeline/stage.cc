// SPDX-License-Identifier: Apache-2.0
#include "data/pipeline/stage.h"

#include <map>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "frontend/graph_builder.h"

namespace millrace {
namespace {

struct Placed {
  Output variant;
  bool uses_graph = false;
};

// One graph's nodes of a pipeline: a stage that two others are made of is there once.
class Placer {
 public:
  Placer(const Scope& scope, std::vector<DatasetFeed>* feeds) : scope_(scope), feeds_(feeds) {}

  Placed Place(const Dataset& dataset) {
    const DatasetStage& stage = *dataset.stage();
    if (const auto known = placed_.find(&stage); known != placed_.end()) return known->second;
    StagePlace place{scope_, stage, {}, false, feeds_};
    for (const Dataset& input : stage.inputs) {
      const Placed before = Place(input);
      if (!before.variant.valid()) return {};
      place.inputs.push_back(before.variant);
      place.uses_graph |= before.uses_graph;
    }
    Placed result;
    result.variant = stage.add(place);
    result.uses_graph = place.uses_graph;
    placed_[&stage] = result;
    return result;
  }

 private:
  const Scope scope_;
  std::vector<DatasetFeed>* const feeds_;
  std::map<const DatasetStage*, Placed> placed_;
};

std::string TextOf(const DatasetStage& stage) {
  if (stage.inputs.empty()) return stage.text;
  std::string inputs;
  for (const Dataset& input : stage.inputs) {
    StrAppend(&inputs, inputs.empty() ? "" : ", ", TextOf(*input.stage()));
  }
  if (stage.inputs.size() > 1) inputs = StrCat("[", inputs, "]");
  return StrCat(inputs, " > ", stage.text);
}

}  // namespace

Dataset NewDataset(DatasetStage stage) {
  for (const Dataset& input : stage.inputs) {
    if (input.status().ok()) continue;
    stage.status = input.status();
    stage.dtypes.clear();
    stage.shapes.clear();
    break;
  }
  if (!stage.inputs.empty()) stage.options = stage.inputs[0].options();
  return Dataset(std::make_shared<const DatasetStage>(std::move(stage)));
}

Dataset FailedDataset(const Status& status, std::source_location where) {
  DatasetStage stage;
  stage.text = "error";
  stage.status = Annotate(status, StrCat(" (at ", FormatOrigin(where), ")"));
  stage.where = where;
  return Dataset(std::make_shared<const DatasetStage>(std::move(stage)));
}

Dataset FailedDataset(const Dataset& input, const Status& status, std::source_location where) {
  return input.status().ok() ? FailedDataset(status, where) : input;
}

Output AddStageOp(StagePlace& place, std::string_view op, std::vector<std::vector<Input>> args,
                  NamedAttrs attrs) {
  return place.scope.AddOpWithLists(op, args, std::move(attrs), place.stage.where).output(0);
}

Output AddTypedOp(StagePlace& place, std::string_view op, std::vector<std::vector<Input>> args,
                  NamedAttrs attrs) {
  std::vector<std::vector<Input>> all;
  for (const Output& input : place.inputs) all.push_back({input});
  for (std::vector<Input>& arg : args) all.push_back(std::move(arg));
  attrs.emplace_back("output_types", place.stage.dtypes);
  attrs.emplace_back("output_shapes", place.stage.shapes);
  return AddStageOp(place, op, std::move(all), std::move(attrs));
}

bool AddFunction(StagePlace& place, std::string_view name, const std::vector<FunctionArg>& args,
                 const FunctionBuilder& f, const char* attr, const char* types_attr,
                 std::vector<std::vector<Input>>* captures, NamedAttrs* attrs) {
  const GraphFunction function = DefineFunction(place.scope, name, args, f, {}, place.stage.where);
  if (!function.valid()) return false;
  place.uses_graph |= !function.captures().empty();
  std::vector<DataType> types;
  std::vector<Input>& captured = captures->emplace_back();
  for (const Output& capture : function.captures()) {
    types.push_back(BaseType(capture.dtype()));
    captured.push_back(capture);
  }
  attrs->emplace_back(attr, function.attr());
  attrs->emplace_back(types_attr, types);
  return true;
}

std::vector<PartialShape> CommonShapes(const std::vector<PartialShape>& a,
                                       const std::vector<PartialShape>& b) {
  std::vector<PartialShape> common = a;
  for (std::size_t i = 0; i < common.size() && i < b.size(); ++i) {
    PartialShape& shape = common[i];
    if (shape.rank() != b[i].rank()) shape = PartialShape();
    for (int d = 0; d < shape.rank(); ++d) {
      if (shape.dim(d) != b[i].dim(d)) shape.SetDim(d, -1);
    }
  }
  return common;
}

std::vector<FunctionArg> ArgsOf(const Dataset& input) {
  std::vector<FunctionArg> args;
  for (std::size_t i = 0; i < input.dtypes().size(); ++i) {
    args.push_back({input.dtypes()[i], input.shapes()[i], ""});
  }
  return args;
}

Dataset FromVariant(const Output& variant, const std::vector<DataType>& dtypes,
                    const std::vector<PartialShape>& shapes, std::source_location where) {
  DatasetStage stage;
  stage.op = stage.text = "Variant";
  stage.dtypes = dtypes;
  stage.shapes = shapes;
  stage.where = where;
  stage.add = [variant](StagePlace& place) {
    place.uses_graph = true;
    return variant;
  };
  return NewDataset(std::move(stage));
}

// ---- What the class says itself
// ------------------------------------------------------------------

Dataset::Dataset() {
  static const auto* const none = [] {
    auto* stage = new DatasetStage;
    stage->text = "none";
    stage->status = errors::FailedPrecondition(
        "this is no data set: begin with one of Dataset's FromTensorSlices, Range, TextLines, ...");
    return new std::shared_ptr<const DatasetStage>(stage);
  }();
  stage_ = *none;
}

Dataset::Dataset(std::shared_ptr<const DatasetStage> stage) : stage_(std::move(stage)) {}

const Status& Dataset::status() const { return stage_->status; }
const std::vector<DataType>& Dataset::dtypes() const { return stage_->dtypes; }
const std::vector<PartialShape>& Dataset::shapes() const { return stage_->shapes; }
int64_t Dataset::cardinality() const {
  return stage_->status.ok() ? stage_->cardinality : Dataset::kUnknown;
}
DatasetOptions Dataset::options() const { return stage_->options; }
std::string Dataset::DebugString() const { return TextOf(*stage_); }

Dataset Dataset::WithOptions(const DatasetOptions& options) const {
  DatasetStage stage = *stage_;
  stage.options = options;
  return Dataset(std::make_shared<const DatasetStage>(std::move(stage)));
}

Output Dataset::AddTo(const Scope& scope, Here where) const {
  return PlaceDataset(scope, *this, nullptr, where);
}

Output PlaceDataset(const Scope& scope, const Dataset& dataset, std::vector<DatasetFeed>* feeds,
                    std::source_location where) {
  if (!scope.status().ok()) return Output();
  if (!dataset.status().ok()) {
    scope.RecordError(dataset.status(), where);
    return Output();
  }
  return Placer(scope, feeds).Place(dataset).variant;
}

Scope IteratorScope(const Scope& scope, std::string_view name) {
  // Data sets have kernels for processors only; tasks are those of the scope.
  return scope.Named(name).WithDevice("/device:CPU:0");
}

DatasetIterator MakeIterator(const Scope& scope, const Dataset& dataset, std::string_view name,
                             std::source_location where) {
  const Scope s = IteratorScope(scope, name);
  return IteratorOver(s, dataset, dataset.AddTo(s, where), where);
}

DatasetIterator IteratorOver(const Scope& s, const Dataset& dataset, const Output& variant,
                             std::source_location where) {
  if (!variant.valid()) return {};
  const NamedAttrs types = {{"output_types", dataset.dtypes()},
                            {"output_shapes", dataset.shapes()}};
  NamedAttrs attrs = types;
  attrs.emplace_back("shared_name", "");
  attrs.emplace_back("container", "");
  const Output handle = s.AddOp("IteratorV2", {}, attrs, where).output(0);
  if (!handle.valid()) return {};
  DatasetIterator iterator;
  iterator.initializer = s.AddOp("MakeIterator", std::vector<Input>{variant, handle}, {}, where);
  const Operation next = s.AddOp("IteratorGetNext", std::vector<Input>{handle}, types, where);
  for (int i = 0; i < next.num_outputs(); ++i) iterator.next.push_back(next.output(i));
  return iterator;
}

}  // namespace millrace
