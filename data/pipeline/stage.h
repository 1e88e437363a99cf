// SPDX-License-Identifier: Apache-2.0
// What a Dataset is made of: one stage of a pipeline with those before it. Constant once made, and
// shared by everything that is made of it.
#ifndef DATA_PIPELINE_STAGE_H_
#define DATA_PIPELINE_STAGE_H_

#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/data.h"
#include "millrace/functions.h"
#include "millrace/graph.h"

namespace millrace {

using NamedAttrs = std::vector<std::pair<std::string, AttrValue>>;

// A placeholder that stands where a stage would have a constant, and what to feed it.
struct DatasetFeed {
  Output placeholder;
  Tensor value;
};

// What a stage is given when it is put into a graph, and what it says of itself.
struct StagePlace {
  Scope scope;
  const DatasetStage& stage;
  std::vector<Output> inputs;  // variants of the stages before
  // Depends on values of the graph that may differ from one initialization to the next. Comes with
  // what is known of the inputs.
  bool uses_graph = false;
  std::vector<DatasetFeed>* feeds = nullptr;  // null: tensors are constants of the graph
};

struct DatasetStage {
  std::string op;    // TensorFlow's name: "BatchDatasetV2"
  std::string text;  // "Batch(32)"
  std::vector<Dataset> inputs{};
  std::vector<DataType> dtypes{};
  std::vector<PartialShape> shapes{};
  int64_t cardinality = Dataset::kUnknown;
  std::source_location where{};
  // Adds the op; not valid on an error, which the graph has then.
  std::function<Output(StagePlace&)> add{};
  // The same stage on other inputs of the same types: how pipelines are rewritten.
  std::function<Dataset(const std::vector<Dataset>&)> remake{};
  // Of a shuffle without a seed: the same with one.
  std::function<Dataset(const std::vector<Dataset>&, int64_t seed)> seeded{};
  Status status{};
  DatasetOptions options{};
  int64_t batch_size = 0;  // of Batch and PaddedBatch
  // Of what reads files: their names, and the reader of one of them. Of ListFiles: only the flag.
  std::vector<std::string> files{};
  std::function<Dataset(const Output& file)> read_file{};
  bool gives_file_names = false;
  bool is_shard_hint = false;
  bool keeps_order = false;                // of a shuffle: one order for all walks
  std::shared_ptr<const Dataset> inner{};  // what a function gave when it was tried
};

// With the options of its first input, and the first error among its inputs instead of itself.
Dataset NewDataset(DatasetStage stage);
Dataset FailedDataset(const Status& status, std::source_location where);
// The same of a stage on `input`, whose own error came before.
Dataset FailedDataset(const Dataset& input, const Status& status, std::source_location where);

// Dataset::AddTo; with `feeds`, tensors of the program become placeholders, which it lists.
Output PlaceDataset(const Scope& scope, const Dataset& dataset, std::vector<DatasetFeed>* feeds,
                    std::source_location where);
// Nodes of an iterator over `dataset`, which `variant` is in the graph.
DatasetIterator IteratorOver(const Scope& scope, const Dataset& dataset, const Output& variant,
                             std::source_location where);
// What MakeIterator puts an iterator of this name into.
Scope IteratorScope(const Scope& scope, std::string_view name);

// Adds the stage's op with `args` (one vector per argument of the op) behind its inputs.
Output AddStageOp(StagePlace& place, std::string_view op, std::vector<std::vector<Input>> args,
                  NamedAttrs attrs);
// The same with output_types and output_shapes.
Output AddTypedOp(StagePlace& place, std::string_view op, std::vector<std::vector<Input>> args,
                  NamedAttrs attrs = {});

// A function of an element of `input`.
std::vector<FunctionArg> ArgsOf(const Dataset& input);

// What a function of data sets was given: a variant in a graph.
Dataset FromVariant(const Output& variant, const std::vector<DataType>& dtypes,
                    const std::vector<PartialShape>& shapes, std::source_location where);

// Defines a function for an op of the stage: its attribute `attr`, what it captures as one more
// list of `captures`, and the types of that as the attribute `types_attr`. False on an error, which
// the graph has then.
bool AddFunction(StagePlace& place, std::string_view name, const std::vector<FunctionArg>& args,
                 const FunctionBuilder& f, const char* attr, const char* types_attr,
                 std::vector<std::vector<Input>>* captures, NamedAttrs* attrs);

// Map of elements whose first component is the name of a file: an error of the function begins with
// the name and ends with `advice`, which says what can be done.
Dataset MapFiles(const Dataset& names, const ElementFunction& f, const MapOptions& options,
                 const std::string& advice, std::source_location where);

// By component: dimensions and ranks that differ are unknown.
std::vector<PartialShape> CommonShapes(const std::vector<PartialShape>& a,
                                       const std::vector<PartialShape>& b);

// The two seeds of a random op, as TensorFlow's Python derives them from the graph's seed and the
// op's. (0, 0): another order each time.
std::pair<int64_t, int64_t> DatasetSeeds(const Scope& scope, int64_t op_seed);

}  // namespace millrace

#endif  // DATA_PIPELINE_STAGE_H_
