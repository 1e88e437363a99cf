// SPDX-License-Identifier: Apache-2.0
#include "base/component_file.h"

#include <unistd.h>

#include <climits>

#include "base/strings.h"

namespace millrace {
namespace {

std::string FolderOfProgram() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  if (n <= 0) return ".";
  const std::string text(path, static_cast<std::size_t>(n));
  return text.substr(0, text.rfind('/'));
}

}  // namespace

std::string FindComponentFile(std::string_view name, std::string_view folder) {
  const std::string program = FolderOfProgram();
  for (const std::string& place : {std::string(), std::string("../lib/"),
                                   StrCat("../", folder, "/"), StrCat("../../", folder, "/")}) {
    std::string path = StrCat(program, "/", place, name);
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return "";
}

}  // namespace millrace
