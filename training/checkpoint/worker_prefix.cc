// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/strings.h"
#include "io/filesystem.h"
#include "io/uri.h"
#include "millrace/checkpoint_layout.h"

namespace millrace {
namespace {

bool IsDigits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// ".index", ".meta" or what else it is called, ".data-00000-of-00001"; not what other prefixes,
// which begin alike, are called: ".b.index", ".b-5.index".
bool IsSuffix(std::string_view text) {
  if (text.empty()) return true;
  if (text[0] != '.' || text.find('.', 1) != std::string_view::npos) return false;
  return text.starts_with(".data-") || text.find('-') == std::string_view::npos;
}

// Of a checkpoint with this name, or with a number behind it, and what it is made from: files under
// temporary names, folders of parts.
bool IsOf(std::string_view file, std::string_view name) {
  constexpr std::string_view kParts = "_temp_";
  if (!file.starts_with(name)) return false;
  std::string_view rest = file.substr(name.size());
  const std::size_t temporary = rest.rfind(kTemporarySuffix);
  if (temporary != std::string_view::npos &&
      IsDigits(rest.substr(temporary + std::string_view(kTemporarySuffix).size()))) {
    rest = rest.substr(0, temporary);
  }
  const std::size_t end = std::min(rest.find_first_of("._"), rest.size());
  if (end > 0 && (rest[0] != '-' || !IsDigits(rest.substr(1, end - 1)))) return false;
  rest = rest.substr(end);
  return rest.starts_with(kParts) || IsSuffix(rest);
}

}  // namespace

WorkerPrefix::WorkerPrefix(bool is_chief, int worker, const std::string& prefix) : path_(prefix) {
  // What is no prefix stays so, that whoever is given it says so.
  if (is_chief || prefix.empty() || prefix.ends_with('/')) return;
  temporary_ = JoinPath(DirectoryName(prefix), StrCat("workertemp_", worker));
  path_ = JoinPath(temporary_, BaseName(prefix));
  // What no save can write to has nothing to delete.
  temporary_ = LocalPath(temporary_).value_or(temporary_);
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
