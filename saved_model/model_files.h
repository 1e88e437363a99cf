// SPDX-License-Identifier: Apache-2.0
// The files of a SavedModel, and what a graph in it says of how it is loaded.
#ifndef SAVED_MODEL_MODEL_FILES_H_
#define SAVED_MODEL_MODEL_FILES_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "millrace/status.h"
#include "millrace/tensor.h"
#include "proto/meta_graph.pb.h"

namespace millrace {

inline constexpr char kMainOpCollection[] = "saved_model_main_op";

// DIRECTORY/saved_model.pb, DIRECTORY/variables/variables and DIRECTORY/assets/FILENAME.
std::string GraphFileOf(const std::string& directory);
std::string VariablesPrefixOf(const std::string& directory);
std::string AssetPathOf(const std::string& directory, const std::string& filename);

// The whole message. NotFound if there is no such file; InvalidArgument, naming it, if it is no
// SavedModel, or one without graphs.
StatusOr<pb::SavedModel> ReadSavedModel(const std::string& directory);
// Its graph with exactly these tags. NotFound lists the tags that there are.
StatusOr<pb::MetaGraphDef> ChooseMetaGraph(pb::SavedModel model, const std::set<std::string>& tags,
                                           const std::string& file);
std::set<std::string> TagsOf(const pb::MetaGraphDef& meta);

// The files beside the graph that it reads.
StatusOr<std::vector<pb::AssetFileDef>> AssetsOf(const pb::MetaGraphDef& meta);
// What is fed while variables are restored and the model is initialised: names of string tensors,
// with the paths of the assets. InvalidArgument for a filename that leads out of the directory.
StatusOr<std::vector<std::pair<std::string, Tensor>>> AssetFeeds(const pb::MetaGraphDef& meta,
                                                                 const std::string& directory);
// The op that is to be run after the variables have their values; "" if there is none.
std::string InitOpOf(const pb::MetaGraphDef& meta);

// The ops that nodes and functions of the graph name and this build has not; sorted.
std::vector<std::string> MissingOps(const pb::GraphDef& graph);

// Copies a file, whose directories are made.
Status CopyFile(const std::string& from, const std::string& to);
// Writes a SavedModel of this one graph: the last of its files.
Status WriteSavedModel(const std::string& directory, pb::MetaGraphDef meta);

}  // namespace millrace

#endif  // SAVED_MODEL_MODEL_FILES_H_
