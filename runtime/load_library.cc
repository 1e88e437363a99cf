// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <elf.h>
#include <sys/stat.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "millrace/custom_op.h"
#include "ops/custom/custom_ops.h"

namespace millrace {
namespace {

constexpr char kAbiSymbol[] = "millrace_custom_op_abi";
constexpr char kOpsSymbol[] = "millrace_custom_ops";
using AbiFunction = const char* (*)();
using OpsFunction = void (*)(CustomOps&);

struct Loaded {
  Mutex mu;
  std::set<std::string> files ABSL_GUARDED_BY(mu);  // without links
};

Loaded& LoadedLibraries() {
  static auto* const loaded = new Loaded;
  return *loaded;
}

// The file's name without links; dlopen would look for a bare name in the system's folders.
StatusOr<std::string> RealFile(const std::string& path) {
  char real[PATH_MAX];
  struct stat file;
  if (realpath(path.c_str(), real) == nullptr || stat(real, &file) != 0) {
    return errors::NotFound("there is no library ", CEscape(path));
  }
  if (!S_ISREG(file.st_mode)) return errors::InvalidArgument(CEscape(path), " is not a file");
  return std::string(real);
}

// A file that was cut short: the loader would map what is missing, and the process end by SIGBUS.
Status CheckWhole(const std::string& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  const auto size = static_cast<int64_t>(in.tellg());
  Elf64_Ehdr header;
  in.seekg(0);
  in.read(reinterpret_cast<char*>(&header), sizeof(header));
  if (!in || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)) {
    return errors::InvalidArgument(file, " cannot be loaded: it is no shared library of 64 bits");
  }
  in.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part;
    in.read(reinterpret_cast<char*>(&part), sizeof(part));
    if (!in || part.p_offset > static_cast<uint64_t>(size) ||
        part.p_filesz > static_cast<uint64_t>(size) - part.p_offset) {
      return errors::InvalidArgument(file, " cannot be loaded: it ends after ", size,
                                     " bytes, before its contents do");
    }
  }
  return OkStatus();
}

std::string LastLoaderError() {
  const char* const text = dlerror();
  return text == nullptr ? "no reason is known" : text;
}

// What the library defines, once its versions are known to be ours.
StatusOr<std::vector<CustomOp>> OpsOf(void* library, const std::string& path) {
  const auto abi = reinterpret_cast<AbiFunction>(dlsym(library, kAbiSymbol));
  const auto define = reinterpret_cast<OpsFunction>(dlsym(library, kOpsSymbol));
  if (abi == nullptr || define == nullptr) {
    return errors::InvalidArgument(path, " is no library of ops: it lacks MR_CUSTOM_OPS");
  }
  if (const char* const built = abi(); std::string_view(built) != MILLRACE_CUSTOM_OP_ABI) {
    return errors::FailedPrecondition(path, " was built for '", CEscape(built), "', and this is '",
                                      MILLRACE_CUSTOM_OP_ABI,
                                      "': build it again with the headers of this version");
  }
  CustomOps ops;
  try {
    define(ops);
  } catch (...) {
    return Annotate(CaughtStatus(), StrCat(" (while ", path, " defined its ops)"));
  }
  if (ops.all().empty()) return errors::InvalidArgument(path, " defines no op");
  return std::move(ops.all());
}

}  // namespace

Status LoadLibrary(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string file, RealFile(path));
  Loaded& loaded = LoadedLibraries();
  const MutexLock lock(&loaded.mu);
  if (loaded.files.contains(file)) return OkStatus();
  MR_RETURN_IF_ERROR(CheckWhole(file));
  // Every symbol now: one that is missing is an error here, and not the end of the process later.
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return errors::FailedPrecondition(
        "library ", file, " cannot be loaded: ", LastLoaderError(),
        ". Symbols of millrace come from libmillrace.so, or from a program linked with -rdynamic");
  }
  StatusOr<std::vector<CustomOp>> ops = OpsOf(library, file);
  if (ops.ok()) {
    if (Status status = AddCustomOps(*std::move(ops), file); status.ok()) {
      loaded.files.insert(file);
      return OkStatus();
    } else {
      ops = std::move(status);
    }
  }
  const Status status = ops.status();
  ops = errors::Unknown("");  // functions of the library go before it does
  dlclose(library);
  return status;
}

}  // namespace millrace
