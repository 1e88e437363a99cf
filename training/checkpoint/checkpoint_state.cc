// SPDX-License-Identifier: Apache-2.0
// The state file of a directory of checkpoints: which there are, and which is the newest.
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <compare>
#include <filesystem>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "io/filesystem.h"
#include "io/uri.h"
#include "proto/tensor_bundle.pb.h"
#include "training/checkpoint/checkpoint_files.h"

namespace millrace {
namespace {

// As Python writes a float: the shortest decimals, and always a point.
std::string FloatText(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  char buffer[400];
  const bool plain = value == 0 || (std::abs(value) < 1e16 && std::abs(value) >= 1e-4);
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

bool IsAbsolute(const std::string& path) {
  return path.starts_with('/') || !SchemeOf(path).empty();
}

std::string RelativeTo(const std::string& directory, const std::string& path) {
  const auto normal = [](const std::string& p) {
    return std::filesystem::path(p.empty() ? "." : p).lexically_normal();
  };
  return normal(path).lexically_relative(normal(directory)).string();
}

// Takes the errors of the parser, which would go to stderr otherwise.
class Silent : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

StatusOr<pb::CheckpointState> ReadStateFile(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string text, PosixFileSystem()->ReadFile(path));
  pb::CheckpointState proto;
  google::protobuf::TextFormat::Parser parser;
  Silent silent;
  parser.RecordErrorsTo(&silent);
  if (!parser.ParseFromString(text, &proto)) {
    return errors::DataLoss(path, " is no CheckpointState in text form");
  }
  return proto;
}

// One that is in a directory, whoever has written it.
struct FoundCheckpoint {
  double time = 0;      // of its files, in seconds since 1970
  int64_t number = -1;  // with which its name ends; -1: none
  std::string prefix;

  friend auto operator<=>(const FoundCheckpoint&, const FoundCheckpoint&) = default;
};

// What stands before "-<number>" at the end, and the number; -1 if there is none.
std::pair<std::string_view, int64_t> NameAndNumber(std::string_view prefix) {
  const std::size_t dash = prefix.rfind('-');
  int64_t number = -1;
  if (dash == std::string_view::npos || !ParseInt64(prefix.substr(dash + 1), &number) ||
      number < 0) {
    return {prefix, -1};
  }
  return {prefix.substr(0, dash), number};
}

// Newest first; of those that a clock with few ticks takes for equally old, the greater number.
std::vector<FoundCheckpoint> CheckpointsIn(const std::string& directory) {
  constexpr std::string_view kEnd = ".index";
  std::vector<FoundCheckpoint> found;
  const auto names = PosixFileSystem()->List(directory.empty() ? "." : directory);
  if (!names.ok()) return {};
  for (const std::string& name : *names) {
    if (!name.ends_with(kEnd)) continue;
    const std::string prefix = JoinPath(directory, name.substr(0, name.size() - kEnd.size()));
    if (const auto time = CheckpointTime(prefix)) {
      found.push_back({*time, NameAndNumber(prefix).second, prefix});
    }
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

// Of a directory without a list: those that are whole, under the name. If nobody has said which
// ones are the program's, those that are called as the newest.
CheckpointState StateOfFiles(const std::string& directory, std::string name) {
  CheckpointState state;
  for (const FoundCheckpoint& found : CheckpointsIn(directory)) {
    const auto [full, number] = NameAndNumber(found.prefix);
    if (number < 0 || (!name.empty() && BaseName(full) != name)) continue;
    if (!CheckpointIsComplete(found.prefix)) continue;
    if (name.empty()) name = BaseName(full);
    state.all_model_checkpoint_paths.push_back(found.prefix);
    state.all_model_checkpoint_timestamps.push_back(found.time);
  }
  if (state.all_model_checkpoint_paths.empty()) return state;
  state.model_checkpoint_path = state.all_model_checkpoint_paths.front();
  std::reverse(state.all_model_checkpoint_paths.begin(), state.all_model_checkpoint_paths.end());
  std::reverse(state.all_model_checkpoint_timestamps.begin(),
               state.all_model_checkpoint_timestamps.end());
  return state;
}

}  // namespace

std::string CheckpointStateText(const CheckpointState& state) {
  std::string text =
      StrCat("model_checkpoint_path: \"", CEscape(state.model_checkpoint_path), "\"\n");
  for (const std::string& path : state.all_model_checkpoint_paths) {
    StrAppend(&text, "all_model_checkpoint_paths: \"", CEscape(path), "\"\n");
  }
  for (const double time : state.all_model_checkpoint_timestamps) {
    StrAppend(&text, "all_model_checkpoint_timestamps: ", FloatText(time), "\n");
  }
  if (state.last_preserved_timestamp != 0) {
    StrAppend(&text, "last_preserved_timestamp: ", FloatText(state.last_preserved_timestamp), "\n");
  }
  return text;
}

StatusOr<std::optional<CheckpointState>> GetCheckpointState(const std::string& directory,
                                                            const std::string& latest_filename) {
  const std::string path = JoinPath(directory, latest_filename);
  const StatusOr<pb::CheckpointState> proto = ReadStateFile(path);
  if (!proto.ok()) {
    if (!errors::IsNotFound(proto.status())) {
      MR_LOG(kWarning, path, ": Checkpoint ignored: ", Message(proto.status()));
    }
    return std::optional<CheckpointState>();
  }
  if (proto->model_checkpoint_path().empty()) {
    return errors::InvalidArgument("Invalid checkpoint state loaded from ", path,
                                   ": it has no model_checkpoint_path");
  }
  const auto joined = [&](const std::string& p) {
    return IsAbsolute(p) ? p : JoinPath(directory, p);
  };
  CheckpointState state;
  state.model_checkpoint_path = joined(proto->model_checkpoint_path());
  for (const std::string& p : proto->all_model_checkpoint_paths()) {
    state.all_model_checkpoint_paths.push_back(joined(p));
  }
  state.all_model_checkpoint_timestamps.assign(proto->all_model_checkpoint_timestamps().begin(),
                                               proto->all_model_checkpoint_timestamps().end());
  state.last_preserved_timestamp = proto->last_preserved_timestamp();
  return std::optional(std::move(state));
}

std::optional<CheckpointState> RecoverCheckpointState(const std::string& directory,
                                                      const std::string& name,
                                                      const std::string& latest_filename) {
  const auto read = GetCheckpointState(directory, latest_filename);
  if (read.ok() && read->has_value()) return **read;
  const std::string path = JoinPath(directory, latest_filename);
  if (read.ok() && !PosixFileSystem()->FileExists(path)) return std::nullopt;
  if (!read.ok()) MR_LOG(kWarning, Message(read.status()));
  CheckpointState state = StateOfFiles(directory, name);
  const std::vector<std::string>& all = state.all_model_checkpoint_paths;
  const std::string whose = name.empty() ? "" : StrCat(" called ", name, "-<number>");
  if (all.empty()) {
    MR_LOG(kWarning, path, " cannot be read, and there is no complete checkpoint", whose, " in ",
           directory, ": the list of checkpoints begins anew");
    return std::nullopt;
  }
  MR_LOG(kWarning, path, " cannot be read: the list of checkpoints is that of the ", all.size(),
         " complete one(s)", whose, " in ", directory, ", from ", all.front(), " to ", all.back(),
         "; the next save writes it");
  return state;
}

Status UpdateCheckpointState(const std::string& directory, CheckpointState state,
                             const std::string& latest_filename, bool relative) {
  const std::string path = JoinPath(directory, latest_filename);
  std::vector<std::string>& all = state.all_model_checkpoint_paths;
  if (all.empty() || all.back() != state.model_checkpoint_path) {
    all.push_back(state.model_checkpoint_path);
  }
  if (!state.all_model_checkpoint_timestamps.empty() &&
      state.all_model_checkpoint_timestamps.size() != all.size()) {
    return errors::InvalidArgument(all.size(), " checkpoints with ",
                                   state.all_model_checkpoint_timestamps.size(), " times for ",
                                   path, "; give each one a time, or none");
  }
  if (path == state.model_checkpoint_path) {
    return errors::FailedPrecondition("Save path '", path,
                                      "' conflicts with path used for checkpoint state. Please "
                                      "use a different save path.");
  }
  if (relative || !IsAbsolute(directory)) {
    const auto shorten = [&](std::string& p) {
      if (IsAbsolute(p) == IsAbsolute(directory)) p = RelativeTo(directory, p);
    };
    shorten(state.model_checkpoint_path);
    for (std::string& p : all) shorten(p);
  }
  return PosixFileSystem()->WriteFileDurably(path, CheckpointStateText(state));
}

std::string LatestCheckpoint(const std::string& directory, const std::string& latest_filename) {
  const auto state = GetCheckpointState(directory, latest_filename);
  if (!state.ok()) MR_LOG(kWarning, Message(state.status()));
  std::string newest;
  if (state.ok() && state->has_value()) {
    newest = (*state)->model_checkpoint_path;
    if (CheckpointIsComplete(newest)) return newest;
    MR_LOG(kWarning, "Couldn't match files for checkpoint ", newest,
           ": there are none, or they are not complete; looking for an older one");
    const std::vector<std::string>& all = (*state)->all_model_checkpoint_paths;
    for (auto it = all.rbegin(); it != all.rend(); ++it) {
      if (CheckpointIsComplete(*it)) {
        MR_LOG(kWarning, "taking ", *it, " instead of ", newest);
        return *it;
      }
    }
  }
  for (const FoundCheckpoint& found : CheckpointsIn(directory)) {
    const std::string& prefix = found.prefix;
    if (!CheckpointIsComplete(prefix)) continue;
    MR_LOG(kWarning, "taking ", prefix, ", the complete checkpoint in ", directory,
           " that was written last: ", JoinPath(directory, latest_filename),
           newest.empty() ? " cannot be read" : " names none that is complete");
    return prefix;
  }
  return "";
}

}  // namespace millrace
