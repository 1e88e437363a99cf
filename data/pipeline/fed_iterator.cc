// SPDX-License-Identifier: Apache-2.0
// Iterators that read one data set after the other: what two data sets need to have in common.
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "data/pipeline/stage.h"
#include "millrace/iterator_position.h"

namespace millrace {
namespace {

// A text that takes long to compare is not worth it.
constexpr std::size_t kMostText = std::size_t{4} << 20;

struct Draws {
  bool seeded = false, unseeded = false;  // shuffles of these kinds
};

// Looks at all stages but those within functions, which begin anew each time.
Status CheckStages(const Dataset& dataset, Draws* draws) {
  const DatasetStage& stage = *dataset.stage();
  const bool shuffles = stage.op == "ShuffleDatasetV3", draws_a_seed = stage.seeded != nullptr;
  if (shuffles && !(draws_a_seed && stage.keeps_order)) {
    (draws_a_seed ? draws->unseeded : draws->seeded) = true;
  } else if (draws_a_seed || stage.op == "CacheDatasetV2" || stage.op == "_GeneratorDataset") {
    return errors::Unimplemented("the data set ", dataset.DebugString(), " has a stage ", stage.op,
                                 ", which is this data set's alone");
  }
  for (const Dataset& input : stage.inputs) MR_RETURN_IF_ERROR(CheckStages(input, draws));
  return OkStatus();
}

}  // namespace

StatusOr<DatasetForm> FormOf(const Dataset& dataset) {
  MR_RETURN_IF_ERROR(dataset.status());
  Draws draws;
  MR_RETURN_IF_ERROR(CheckStages(dataset, &draws));
  if (draws.seeded && draws.unseeded) {
    return errors::Unimplemented("the data set ", dataset.DebugString(),
                                 " has shuffles with seeds, which begin anew with each data set, "
                                 "and without, which go on");
  }
  // Nodes and functions of a graph of its own: what uses another graph fails in it.
  Graph graph;
  std::vector<DatasetFeed> feeds;
  const Output variant =
      PlaceDataset(graph.root(), dataset, &feeds, std::source_location::current());
  if (!graph.status().ok() || !variant.valid()) {
    return errors::Unimplemented("the data set ", dataset.DebugString(),
                                 " belongs to a graph: ", Message(graph.status()));
  }
  DatasetForm form;
  form.has_seeds = draws.seeded;
  MR_ASSIGN_OR_RETURN(form.text, graph.ToText());
  if (form.text.size() > kMostText) {
    return errors::Unimplemented("the functions of the data set ", dataset.DebugString(),
                                 " have constants of several MiB");
  }
  for (DatasetFeed& feed : feeds) form.tensors.push_back(std::move(feed.value));
  return form;
}

FedIterator MakeFedIterator(const Scope& scope, const Dataset& dataset, std::string_view name,
                            std::source_location where) {
  const Scope s = IteratorScope(scope, name);
  std::vector<DatasetFeed> feeds;
  FedIterator made;
  made.iterator = IteratorOver(s, dataset, PlaceDataset(s, dataset, &feeds, where), where);
  for (const DatasetFeed& feed : feeds) made.feeds.push_back(feed.placeholder);
  return made;
}

}  // namespace millrace
