// Whole files: reading, writing, finding by pattern.
#include <fnmatch.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "io/filesystem.h"
#include "kernels/common/kernel_util.h"
#include "kernels/host_kernels.h"
#include "kernels/kernel_context.h"

namespace millrace {
namespace {

class ReadFileKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& path = ctx.input(0);
    if (path.rank() != 0) {
      return errors::InvalidArgument("Input filename tensor must be scalar, but had shape: ",
                                     path.shape().DebugString());
    }
    MR_ASSIGN_OR_RETURN(std::string content,
                        PosixFileSystem()->ReadFile(path.scalar<std::string>()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    out->data<std::string>()[0] = std::move(content);
    return OkStatus();
  }
};

class WriteFileKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    for (int i = 0; i < 2; ++i) {
      if (ctx.input(i).rank() == 0) continue;
      return errors::InvalidArgument(
          i == 0 ? "Input filename" : "Contents",
          " tensor must be scalar, but had shape: ", ctx.input(i).shape().DebugString());
    }
    const std::string& path = ctx.input(0).scalar<std::string>();
    FileSystem* files = PosixFileSystem();
    if (const std::string_view folder = DirectoryName(path); !folder.empty()) {
      MR_RETURN_IF_ERROR(files->CreateDirectories(std::string(folder)));
    }
    return files->WriteFileAtomically(path, ctx.input(1).scalar<std::string>());
  }
};

class MatchingFilesKernel : public Kernel {
 public:
  using Kernel::Kernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& patterns = ctx.input(0);
    if (patterns.rank() > 1) {
      return errors::InvalidArgument("Input patterns tensor must be scalar or vector, but had ",
                                     "shape: ", patterns.shape().DebugString());
    }
    std::vector<std::string> found;
    for (const std::string& pattern : patterns.flat<std::string>()) Match(pattern, &found);
    std::sort(found.begin(), found.end());
    ctx.SetOutput(
        0, Tensor::FromValues<std::string>(found, Shape({static_cast<int64_t>(found.size())})));
    return OkStatus();
  }

 private:
  // One component of the path after the other. What cannot be listed has no matches.
  static void Match(const std::string& pattern, std::vector<std::string>* found) {
    std::vector<std::string> at = {pattern.starts_with('/') ? "/" : ""};
    const std::vector<std::string_view> parts = StrSplit(pattern, '/');
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].empty()) continue;
      std::vector<std::string> next;
      for (const std::string& folder : at) MatchIn(folder, std::string(parts[i]), &next);
      at = std::move(next);
    }
    found->insert(found->end(), at.begin(), at.end());
  }

  static void MatchIn(const std::string& folder, const std::string& part,
                      std::vector<std::string>* next) {
    FileSystem* files = PosixFileSystem();
    const auto join = [&](std::string_view name) {
      return folder.empty() || folder == "/" ? StrCat(folder, name) : JoinPath(folder, name);
    };
    if (part.find_first_of("*?[\\") == std::string::npos) {
      if (files->FileExists(join(part))) next->push_back(join(part));
      return;
    }
    const StatusOr<std::vector<std::string>> names = files->List(folder.empty() ? "." : folder);
    if (!names.ok()) return;
    for (const std::string& name : *names) {
      if (fnmatch(part.c_str(), name.c_str(), 0) == 0) next->push_back(join(name));
    }
  }
};

}  // namespace

void RegisterFileKernels(KernelRegistry& r) {
  RegisterCpu<ReadFileKernel>(r, "ReadFile");
  RegisterCpu<WriteFileKernel>(r, "WriteFile");
  RegisterCpu<MatchingFilesKernel>(r, "MatchingFiles");
}

}  // namespace millrace
