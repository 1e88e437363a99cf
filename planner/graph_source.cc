// SPDX-License-Identifier: Apache-2.0
#include "planner/graph_source.h"

#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/device_name.h"
#include "io/filesystem.h"
#include "planner/plan_json.h"
#include "planner/text_input.h"
#include "proto/meta_graph.pb.h"

namespace millrace {
namespace {

using Tags = std::set<std::string, std::less<>>;

// A message of another kind often parses, as unknown fields.
bool HasNamedNodes(const pb::GraphDef& def) {
  return def.node_size() > 0 && !def.node(0).name().empty() && !def.node(0).op().empty();
}

bool HasNamedNodes(const pb::SavedModel& model) {
  return std::any_of(model.meta_graphs().begin(), model.meta_graphs().end(),
                     [](const pb::MetaGraphDef& meta) { return HasNamedNodes(meta.graph_def()); });
}

Tags TagsOf(const pb::MetaGraphDef& meta) {
  const auto& tags = meta.meta_info_def().tags();
  return Tags(tags.begin(), tags.end());
}

StatusOr<pb::GraphDef> ChooseGraph(const pb::SavedModel& model, std::string_view wanted) {
  std::vector<std::string> known;
  for (const pb::MetaGraphDef& meta : model.meta_graphs()) {
    known.push_back(StrCat("\"", StrJoin(TagsOf(meta), ","), "\""));
  }
  if (wanted.empty()) {
    if (model.meta_graphs_size() == 1) return model.meta_graphs(0).graph_def();
    return errors::InvalidArgument("the saved model has ", known.size(),
                                   " graphs: choose one by its tags, ", StrJoin(known, " or "));
  }
  Tags tags;
  for (const std::string_view tag : StrSplit(wanted, ',')) tags.emplace(StripWhitespace(tag));
  for (const pb::MetaGraphDef& meta : model.meta_graphs()) {
    if (TagsOf(meta) == tags) return meta.graph_def();
  }
  return errors::NotFound("the saved model has no graph with exactly the tags ", wanted,
                          ", but with ", StrJoin(known, " or "));
}

StatusOr<pb::GraphDef> ParseGraph(const std::string& bytes, std::string_view tags) {
  pb::GraphDef graph;
  pb::MetaGraphDef meta;
  pb::SavedModel model;
  std::string error;
  if (LooksLikeText(bytes)) {
    if (ParseTextMessage(bytes, &graph, &error)) return graph;
    std::string other;
    if (ParseTextMessage(bytes, &meta, &other) && meta.has_graph_def()) return meta.graph_def();
    if (ParseTextMessage(bytes, &model, &other) && model.meta_graphs_size() > 0) {
      return ChooseGraph(model, tags);
    }
  }
  // Each is tried on bytes of the others, which is no error to print.
  const google::protobuf::LogSilencer quiet;
  if (graph.ParseFromString(bytes) && HasNamedNodes(graph)) return graph;
  if (meta.ParseFromString(bytes) && HasNamedNodes(meta.graph_def())) return meta.graph_def();
  if (model.ParseFromString(bytes) && HasNamedNodes(model)) return ChooseGraph(model, tags);
  return errors::InvalidArgument("it holds neither a GraphDef nor a MetaGraphDef, SavedModel or ",
                                 "plan", error.empty() ? "" : StrCat("; as text: ", error));
}

// The file that stands for a directory.
StatusOr<std::string> FileOf(const std::string& directory) {
  FileSystem* const files = PosixFileSystem();
  for (const char* name : {"saved_model.pb", "saved_model.pbtxt"}) {
    const std::string file = JoinPath(directory, name);
    if (files->FileExists(file)) return file;
  }
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->List(directory));
  std::vector<std::string> sessions;
  std::string placed, pruned;  // the last ones
  for (const std::string& name : names) {
    if (name.starts_with("session_")) sessions.push_back(name);
    if (name.ends_with("_placed.pbtxt")) placed = name;
    if (name.ends_with("_pruned.pbtxt")) pruned = name;
  }
  if (!placed.empty()) return JoinPath(directory, placed);
  if (!pruned.empty()) return JoinPath(directory, pruned);
  if (sessions.size() == 1) return FileOf(JoinPath(directory, sessions[0]));
  if (sessions.size() > 1) {
    return errors::InvalidArgument(directory, " has the dumps of ", sessions.size(),
                                   " sessions: choose one of ", StrJoin(sessions, ", "));
  }
  return errors::NotFound(directory, " is the directory of neither a saved model nor graph dumps");
}

// The record of the placer that lies beside a dumped graph, as PlacementLog::ToText wrote it:
// "NAME (OP)...", and below it lines that begin with blanks, one of them "  rule N: WHY".
void ReadRecord(const std::string& text, GraphSource* source) {
  constexpr std::string_view kAsks = " asks for ", kRule = "rule ", kMade = "made at ";
  Explanation* known = nullptr;
  for (const std::string_view line : StrSplit(text, '\n')) {
    if (line.empty()) continue;
    if (line[0] != ' ') {
      known = &source->explanations[std::string(line.substr(0, line.find(" (")))];
      const std::size_t asks = line.find(kAsks);
      if (asks != std::string_view::npos) {
        const std::string_view device = line.substr(asks + kAsks.size());
        known->requested = device.substr(0, device.find(" -> "));
      }
    }
    if (known == nullptr) continue;
    StrAppend(&known->chain, line, "\n");
    const std::string_view words = StripWhitespace(line);
    int64_t rule = 0;
    const std::size_t colon = words.find(": ");
    if (words.starts_with(kMade)) known->origin = words.substr(kMade.size());
    if (words.starts_with(kRule) && colon != std::string_view::npos && known->rule == 0 &&
        ParseInt64(words.substr(kRule.size(), colon - kRule.size()), &rule)) {
      known->rule = static_cast<int>(rule);
      known->why = words.substr(colon + 2);
    }
  }
}

bool IsPlaced(const pb::GraphDef& graph) {
  StringMap<bool> full;
  return std::all_of(graph.node().begin(), graph.node().end(), [&](const pb::NodeDef& node) {
    const auto [at, is_new] = full.emplace(node.device(), false);
    if (is_new) {
      StatusOr<DeviceName> name = DeviceName::Parse(node.device());
      if (name.ok() && !name->replica) name->replica = 0;
      at->second = name.ok() && name->IsFull();
    }
    return at->second;
  });
}

}  // namespace

StatusOr<GraphSource> ReadGraphSource(const std::string& path, std::string_view tags) {
  std::string file = path;
  if (path != "-" && PosixFileSystem()->IsDirectory(path)) {
    MR_ASSIGN_OR_RETURN(file, FileOf(path));
  }
  MR_ASSIGN_OR_RETURN(const std::string bytes, ReadInput(file));
  GraphSource source;
  if (LooksLikePlanJson(bytes)) {
    StatusOr<GraphSource> plan = ParsePlanJson(bytes);
    if (!plan.ok()) return errors::InvalidArgument(file, ": ", Message(plan.status()));
    source = *std::move(plan);
  } else {
    StatusOr<pb::GraphDef> graph = ParseGraph(bytes, tags);
    if (!graph.ok()) return Annotate(graph.status(), StrCat(" (", file, ")"));
    source.graph = *std::move(graph);
  }
  source.path = file;
  constexpr std::string_view kPlaced = "_placed.pbtxt";
  if (file.ends_with(kPlaced)) {
    const std::string record = file.substr(0, file.size() - kPlaced.size()) + "_placed.txt";
    if (PosixFileSystem()->FileExists(record)) {
      MR_ASSIGN_OR_RETURN(const std::string text, ReadInput(record));
      ReadRecord(text, &source);
    }
  }
  source.is_placed = IsPlaced(source.graph);
  return source;
}

}  // namespace millrace
