#include <filesystem>
#include <system_error>

#include "base/strings.h"
#include "io/filesystem.h"
#include "millrace/checkpoint_layout.h"

namespace millrace {

WorkerPrefix::WorkerPrefix(bool is_chief, int worker, const std::string& prefix) : path_(prefix) {
  // What is no prefix stays so, that whoever is given it says so.
  if (is_chief || prefix.empty() || prefix.ends_with('/')) return;
  temporary_ = JoinPath(DirectoryName(prefix), StrCat("workertemp_", worker));
  path_ = JoinPath(temporary_, BaseName(prefix));
}

WorkerPrefix::~WorkerPrefix() {
  if (temporary_.empty()) return;
  std::error_code error;
  std::filesystem::remove_all(temporary_, error);
}

}  // namespace millrace
