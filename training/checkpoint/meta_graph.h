// A graph as a file that programs import: with its collections, and how it is saved.
#ifndef TRAINING_CHECKPOINT_META_GRAPH_H_
#define TRAINING_CHECKPOINT_META_GRAPH_H_

#include <span>
#include <string>

#include "frontend/graph_builder.h"
#include "millrace/saver.h"
#include "proto/meta_graph.pb.h"

namespace millrace {

// A serialized MetaGraphDef. `saved` says which variables are parts of bigger ones.
StatusOr<std::string> MakeMetaGraph(const GraphState& state, const pb::SaverDef& saver,
                                    std::span<const SavedVariable> saved);

}  // namespace millrace

#endif  // TRAINING_CHECKPOINT_META_GRAPH_H_
