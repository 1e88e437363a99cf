// SPDX-License-Identifier: Apache-2.0
#include "saved_model/model_files.h"

#include "base/errors.h"
#include "base/status_macros.h"
#include "frontend/graph_builder.h"
#include "graph/node_name.h"
#include "io/filesystem.h"
#include "saved_model/signatures.h"

namespace millrace {
namespace {

constexpr char kLegacyInitCollection[] = "legacy_init_op";
constexpr char kAssetsCollection[] = "saved_model_assets";
constexpr int kSchemaVersion = 1;

std::string TagsText(const std::set<std::string>& tags) {
  return tags.empty() ? std::string("(none)") : StrCat("'", StrJoin(tags, ","), "'");
}

std::string FirstOfCollection(const pb::MetaGraphDef& meta, const char* collection) {
  const auto it = meta.collection_def().find(collection);
  if (it == meta.collection_def().end() || it->second.node_list().value().empty()) return "";
  return it->second.node_list().value(0);
}

}  // namespace

std::string GraphFileOf(const std::string& directory) {
  return JoinPath(directory, "saved_model.pb");
}
std::string VariablesPrefixOf(const std::string& directory) {
  return JoinPath(directory, "variables/variables");
}
std::string AssetPathOf(const std::string& directory, const std::string& filename) {
  return JoinPath(JoinPath(directory, "assets"), filename);
}

StatusOr<pb::SavedModel> ReadSavedModel(const std::string& directory) {
  const std::string file = GraphFileOf(directory);
  FileSystem* const files = PosixFileSystem();
  if (!files->FileExists(file)) {
    const bool has_text = files->FileExists(file + "txt");
    return errors::NotFound("there is no SavedModel in ", directory, ": ", file, " is missing",
                            has_text ? " (text graphs, saved_model.pbtxt, are not read)" : "");
  }
  MR_ASSIGN_OR_RETURN(const std::string bytes, files->ReadFile(file));
  pb::SavedModel model;
  if (bytes.empty() || bytes.size() > INT32_MAX || !model.ParseFromString(bytes)) {
    return errors::InvalidArgument(file, " (", bytes.size(),
                                   " bytes) is no SavedModel message: it is cut off, damaged or "
                                   "something else");
  }
  if (model.meta_graphs().empty()) {
    return errors::InvalidArgument(file, " has no graphs; a SavedModel has one for each set of ",
                                   "tags");
  }
  return model;
}

std::set<std::string> TagsOf(const pb::MetaGraphDef& meta) {
  const auto& tags = meta.meta_info_def().tags();
  return {tags.begin(), tags.end()};
}

StatusOr<pb::MetaGraphDef> ChooseMetaGraph(pb::SavedModel model, const std::set<std::string>& tags,
                                           const std::string& file) {
  std::vector<std::string> known;
  for (pb::MetaGraphDef& meta : *model.mutable_meta_graphs()) {
    std::set<std::string> have = TagsOf(meta);
    if (have == tags) return std::move(meta);
    known.push_back(TagsText(have));
  }
  return errors::NotFound(file, " has no graph with exactly the tags ", TagsText(tags),
                          ", but with ", StrJoin(known, " and with "));
}

StatusOr<std::vector<pb::AssetFileDef>> AssetsOf(const pb::MetaGraphDef& meta) {
  std::vector<pb::AssetFileDef> assets(meta.asset_file_def().begin(), meta.asset_file_def().end());
  if (!assets.empty()) return assets;
  // Where TensorFlow 1 has them.
  const auto it = meta.collection_def().find(kAssetsCollection);
  if (it == meta.collection_def().end()) return assets;
  for (const google::protobuf::Any& any : it->second.any_list().value()) {
    if (!assets.emplace_back().ParseFromString(any.value())) {
      return errors::InvalidArgument("the collection ", kAssetsCollection,
                                     " has what is no AssetFileDef: ", any.type_url());
    }
  }
  return assets;
}

StatusOr<std::vector<std::pair<std::string, Tensor>>> AssetFeeds(const pb::MetaGraphDef& meta,
                                                                 const std::string& directory) {
  MR_ASSIGN_OR_RETURN(const std::vector<pb::AssetFileDef> assets, AssetsOf(meta));
  std::vector<std::pair<std::string, Tensor>> feeds;
  for (const pb::AssetFileDef& asset : assets) {
    const std::string& name = asset.filename();
    for (const std::string_view part : StrSplit(name, '/')) {
      if (!part.empty() && part != "..") continue;
      return errors::InvalidArgument("the asset '", CEscape(name), "' is no path below ",
                                     AssetPathOf(directory, ""));
    }
    feeds.emplace_back(asset.tensor_info().name(), Tensor::String(AssetPathOf(directory, name)));
  }
  return feeds;
}

std::string InitOpOf(const pb::MetaGraphDef& meta) {
  const auto signature = meta.signature_def().find(kInitSignature);
  if (signature != meta.signature_def().end()) {
    const auto output = signature->second.outputs().find(kInitSignature);
    if (output != signature->second.outputs().end()) return output->second.name();
  }
  const std::string main_op = FirstOfCollection(meta, kMainOpCollection);
  return main_op.empty() ? FirstOfCollection(meta, kLegacyInitCollection) : main_op;
}

std::vector<std::string> MissingOps(const pb::GraphDef& graph) {
  std::set<std::string_view> functions;
  for (const pb::FunctionDef& function : graph.library().function()) {
    functions.insert(function.signature().name());
  }
  std::set<std::string> missing;
  const auto look = [&](const pb::NodeDef& node) {
    if (!functions.contains(node.op()) && BuiltinOps().Find(node.op()) == nullptr) {
      missing.insert(node.op());
    }
  };
  for (const pb::NodeDef& node : graph.node()) look(node);
  for (const pb::FunctionDef& function : graph.library().function()) {
    for (const pb::NodeDef& node : function.node_def()) look(node);
  }
  return {missing.begin(), missing.end()};
}

Status CopyFile(const std::string& from, const std::string& to) {
  FileSystem* const files = PosixFileSystem();
  MR_ASSIGN_OR_RETURN(const std::string bytes, files->ReadFile(from));
  MR_RETURN_IF_ERROR(files->CreateDirectories(std::string(DirectoryName(to))));
  return files->WriteFileAtomically(to, bytes);
}

Status WriteSavedModel(const std::string& directory, pb::MetaGraphDef meta) {
  pb::SavedModel model;
  model.set_saved_model_schema_version(kSchemaVersion);
  *model.add_meta_graphs() = std::move(meta);
  std::string bytes;
  if (model.ByteSizeLong() > INT32_MAX || !model.SerializeToString(&bytes)) {
    return errors::InvalidArgument("the graph for ", GraphFileOf(directory), " has ",
                                   model.ByteSizeLong(),
                                   " bytes, and a SavedModel may have 2 GiB - 1: make variables "
                                   "of big constants");
  }
  MR_RETURN_IF_ERROR(PosixFileSystem()->CreateDirectories(directory));
  return PosixFileSystem()->WriteFileDurably(GraphFileOf(directory), bytes);
}

}  // namespace millrace
