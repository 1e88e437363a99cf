// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/driver/shared_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {
namespace {

constexpr char kPathVariable[] = "MILLRACE_CUDA_LIBRARY_PATH";

std::vector<std::string> Places(const std::string& name) {
  std::vector<std::string> places;
  if (const char* const path = std::getenv(kPathVariable); path != nullptr) {
    for (const std::string_view folder : StrSplit(path, ':')) {
      if (!folder.empty()) places.push_back(StrCat(folder, "/", name));
    }
  }
  places.push_back(name);
  std::vector<std::string> homes;
  if (const char* const home = std::getenv("CUDA_HOME"); home != nullptr && *home != '\0') {
    homes.push_back(home);
  }
  homes.push_back("/usr/local/cuda");
  for (const std::string& home : homes) {
    for (const char* const folder : {"lib64", "lib", "extras/CUPTI/lib64"}) {
      places.push_back(StrCat(home, "/", folder, "/", name));
    }
  }
  return places;
}

}  // namespace

StatusOr<SharedLibrary> SharedLibrary::Open(const std::string& name, std::string_view what_to_do) {
  std::string tried;
  for (const std::string& place : Places(name)) {
    // cuDNN's and NCCL's parts find each other by name.
    void* const handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return SharedLibrary(place, handle);
    const char* const reason = dlerror();
    const std::string why = reason == nullptr ? StrCat(place, ": unknown reason") : reason;
    StrAppend(&tried, tried.empty() ? "" : "; ", why);
  }
  return errors::NotFound(name, " could not be loaded: ", what_to_do, ", or name its folder in ",
                          kPathVariable, " (tried ", tried, ")");
}

void* SharedLibrary::Find(const char* function) const { return dlsym(handle_, function); }

Status SharedLibrary::Lacks(std::string_view function) const {
  return errors::FailedPrecondition(path_, " has no function ", function,
                                    ": it is older than this program needs");
}

}  // namespace millrace
