// SPDX-License-Identifier: Apache-2.0
#include "kernels/io/match_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "io/file_root.h"
#include "io/filesystem.h"
#include "io/uri.h"

namespace millrace {
namespace {

// The first refusal of what leads out of --file_root.
struct Outside {
  void Update(Status why) {
    if (status.ok()) status = std::move(why);
  }
  Status status;
};

// Adds the paths in `folder` that may match: a name without wildcards is not looked for.
void MatchIn(const std::string& folder, const std::string& part, std::vector<std::string>* next,
             Outside* outside) {
  const auto join = [&](std::string_view name) {
    return folder.empty() || folder == "/" ? StrCat(folder, name) : JoinPath(folder, name);
  };
  if (part.find_first_of("*?[\\") == std::string::npos) {
    next->push_back(join(part));
    return;
  }
  const std::string place = folder.empty() ? "." : folder;
  const StatusOr<std::vector<std::string>> names = PosixFileSystem()->List(place);
  if (!names.ok()) return outside->Update(CheckNameable(PosixFileSystem(), place));
  for (const std::string& name : *names) {
    if (fnmatch(part.c_str(), name.c_str(), 0) == 0) next->push_back(join(name));
  }
}

}  // namespace

// One component of the path after the other. Folders on the way are only looked at where names are
// matched in them: those above --file_root may not be.
Status MatchFiles(const std::string& pattern, std::vector<std::string>* found) {
  MR_ASSIGN_OR_RETURN(const std::string local, LocalPath(pattern));
  // What was found is named as it was asked for: "file://" and a host stay.
  const std::string prefix =
      pattern.substr(0, pattern.size() - std::min(pattern.size(), local.size()));
  Outside outside;
  std::vector<std::string> at = {local.starts_with('/') ? "/" : ""};
  for (const std::string_view part : StrSplit(local, '/')) {
    if (part.empty()) continue;
    std::vector<std::string> next;
    for (const std::string& folder : at) MatchIn(folder, std::string(part), &next, &outside);
    at = std::move(next);
  }
  for (const std::string& path : at) {
    if (path.empty()) continue;
    if (PosixFileSystem()->FileExists(path)) {
      found->push_back(prefix.empty() ? path : StrCat(prefix, path));
    } else {
      outside.Update(CheckNameable(PosixFileSystem(), path));
    }
  }
  // Of files that were found, those that may be named are the answer.
  return found->empty() ? outside.status : OkStatus();
}

}  // namespace millrace
