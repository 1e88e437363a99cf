// SPDX-License-Identifier: Apache-2.0
// A graph as a file that programs import: with its collections, and how it is saved.
#ifndef TRAINING_CHECKPOINT_META_GRAPH_H_
#define TRAINING_CHECKPOINT_META_GRAPH_H_

#include <span>
#include <string>
#include <string_view>

#include "frontend/graph_builder.h"
#include "millrace/saver.h"
#include "proto/meta_graph.pb.h"

namespace millrace {

// A serialized MetaGraphDef. `saved` says which variables are parts of bigger ones.
// `strip_default_attrs`: without attributes that have their default.
StatusOr<std::string> MakeMetaGraph(const GraphState& state, const pb::SaverDef& saver,
                                    std::span<const SavedVariable> saved,
                                    bool strip_default_attrs = false);

// What is called `name` ("op:1", or "op" for its first output, or an op without outputs) below this
// prefix; not valid if there is none.
Output FindTensor(const Graph& graph, std::string_view below, std::string_view name);

}  // namespace millrace

#endif  // TRAINING_CHECKPOINT_META_GRAPH_H_
