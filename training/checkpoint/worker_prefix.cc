// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/strings.h"
#include "io/filesystem.h"
#include "millrace/checkpoint_layout.h"

namespace millrace {
namespace {

// Of a checkpoint with this name, or with a number behind it, and what it is made from.
bool IsOf(std::string_view file, std::string_view name) {
  if (!file.starts_with(name)) return false;
  const std::string_view rest = file.substr(name.size());
  return rest.empty() || rest[0] == '.' || rest[0] == '-' || rest[0] == '_';
}

}  // namespace

WorkerPrefix::WorkerPrefix(bool is_chief, int worker, const std::string& prefix) : path_(prefix) {
  // What is no prefix stays so, that whoever is given it says so.
  if (is_chief || prefix.empty() || prefix.ends_with('/')) return;
  temporary_ = JoinPath(DirectoryName(prefix), StrCat("workertemp_", worker));
  path_ = JoinPath(temporary_, BaseName(prefix));
}

WorkerPrefix::~WorkerPrefix() {
  if (temporary_.empty()) return;
  namespace fs = std::filesystem;
  // Backups of a training run may lie beside it (docs/fit.md), and stay.
  bool others = false;
  std::vector<fs::path> own;
  std::error_code error;
  for (fs::directory_iterator it(temporary_, error), end; !error && it != end;
       it.increment(error)) {
    const std::string file = it->path().filename();
    if (IsOf(file, BaseName(path_))) {
      own.push_back(it->path());
    } else if (file != "checkpoint") {
      others = true;
    }
  }
  if (!others) own = {temporary_};
  for (const fs::path& path : own) fs::remove_all(path, error);
}

}  // namespace millrace
