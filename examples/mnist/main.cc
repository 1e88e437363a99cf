// SPDX-License-Identifier: Apache-2.0
// mnist_replica: distributed training of handwritten digits, one process per task.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "base/strings.h"
#include "examples/mnist/download.h"
#include "examples/mnist/flags.h"
#include "examples/mnist/launcher.h"
#include "examples/mnist/task.h"
#include "millrace/digits.h"

namespace millrace::mnist {
namespace {

// Under `bazel run` relative paths mean the folder where the user stands.
std::string UserPath(const std::string& path) {
  const char* user_dir = std::getenv("BUILD_WORKING_DIRECTORY");
  if (path.empty() || path[0] == '/' || user_dir == nullptr) return path;
  return std::string(user_dir) + "/" + path;
}

int Report(const Status& status) {
  if (status.ok()) return 0;
  std::fflush(stdout);
  if (StopSignal() != 0) {
    std::fprintf(stderr, "mnist_replica: stopped by signal %d\n", StopSignal());
    return 128 + StopSignal();
  }
  std::fprintf(stderr, "mnist_replica: %s: %.*s\n",
               std::string(millrace::StatusCodeName(status.code())).c_str(),
               static_cast<int>(status.message().size()), status.message().data());
  return 1;
}

int Main(int argc, char** argv) {
  ParsedFlags parsed = ParseFlags(argc, argv);
  if (parsed.exit_code >= 0) return parsed.exit_code;
  Flags& flags = parsed.flags;
  flags.data_dir = UserPath(flags.data_dir);
  flags.dump_graph = UserPath(flags.dump_graph);
  flags.checkpoint_dir = UserPath(flags.checkpoint_dir);
  if (const Status status = CheckFlags(flags); !status.ok()) {
    Report(status);
    return 2;
  }
  // Once: by the launcher, or by the chief of tasks started by hand.
  if (flags.replicas_to_aggregate > 0 && !flags.sync_replicas && flags.progress_fd < 0 &&
      (flags.is_launcher() || flags.is_chief())) {
    std::fprintf(stderr,
                 "mnist_replica: warning: --replicas_to_aggregate has no effect without "
                 "--sync_replicas\n");
  }
  // Bad data is one clear line here, not one from every task.
  if (flags.download_only || (flags.is_launcher() && !flags.data_dir.empty())) {
    if (flags.data_dir.empty()) {
      std::printf("synthetic digits need no data; --data_dir names a folder to check\n");
      return 0;
    }
    if (flags.download_only) {
      const Status status = DownloadDigits(flags.data_dir, flags.data_url);
      if (!status.ok()) return Report(status);
    }
    if (const Status status = CheckDigits(flags.data_dir); !status.ok()) return Report(status);
    if (flags.download_only) {
      std::printf("the MNIST files in %s are complete\n", flags.data_dir.c_str());
      return 0;
    }
  }
  if (flags.is_launcher()) {
    return LaunchLocalCluster(flags, std::vector<std::string>(argv + 1, argv + argc));
  }
  StopOnSignals();
  SetLogTask(StrCat("/job:", flags.job_name, "/task:", flags.task_index));
  if (flags.job_name == "evaluator") return Report(RunEvaluator(flags));
  return Report(flags.job_name == "ps" ? RunParameterServer(flags) : RunWorker(flags));
}

}  // namespace
}  // namespace millrace::mnist

int main(int argc, char** argv) {
  const int code = millrace::mnist::Main(argc, argv);
  std::fflush(stdout);
  _exit(code);  // servers have stopped; threads of libraries need not be waited for
}
