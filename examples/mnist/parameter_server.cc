// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "examples/mnist/serving.h"
#include "examples/mnist/task.h"
#include "millrace/gpu.h"
#include "millrace/security.h"

namespace millrace::mnist {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSaveGrace{2'000};  // less than launchers wait before they kill

}  // namespace

void AddServerFlags(const Flags& flags, ServerOptions* options) {
  options->insecure = flags.insecure;
  if (!flags.checkpoint_dir.empty()) options->allow = {"all"};  // saving is an op
  options->cluster_id = flags.cluster_id;
  options->peer_timeout = milliseconds(static_cast<int64_t>(flags.peer_timeout * 1e3));
}

StatusOr<std::unique_ptr<Pages>> ServePages(const Flags& flags, const Server& server) {
  if (flags.http.empty()) return std::unique_ptr<Pages>();
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Pages> pages, Pages::Serve(server, flags.http));
  MR_LOG(kInfo, "pages at ", pages->url());
  return pages;
}

Status TakeGpus(const Flags& flags) {
  GpuOptions options;
  options.count = flags.num_gpus > 0 ? -1 : 0;
  options.allow_growth = true;
  if (flags.num_gpus > 0) {
    const StatusOr<std::vector<GpuInfo>> gpus = FindGpus();
    if (!gpus.ok()) {
      std::printf("No GPU, using the CPU: %s\n", std::string(Message(gpus.status())).c_str());
    } else if (static_cast<int>(gpus->size()) < flags.num_gpus) {
      std::printf("%zu GPUs, not %d: some workers use the CPU\n", gpus->size(), flags.num_gpus);
    }
  }
  return SetGpuOptions(options);
}

Status RunParameterServer(const Flags& flags) {
  ServerOptions options;
  MR_ASSIGN_OR_RETURN(options.cluster, ClusterFromFlags(flags));
  options.job_name = flags.job_name;
  options.task_index = flags.task_index;
  options.accept_shutdown = true;
  AddServerFlags(flags, &options);
  std::printf("job name = %s\ntask index = %d\n", flags.job_name.c_str(), flags.task_index);
  std::fflush(stdout);
  MR_RETURN_IF_ERROR(SetDefaultCredentials(TaskCredentials(flags)));
  GpuOptions none;
  none.count = 0;
  MR_RETURN_IF_ERROR(SetGpuOptions(none));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Create(options));
  MR_RETURN_IF_ERROR(server->Start());
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Pages> pages, ServePages(flags, *server));
  bool ended = false;
  while (StopSignal() == 0 && !ended) ended = server->WaitForShutdown(milliseconds(200));
  // The chief has been told as well, and saves what is here.
  if (!ended && !flags.checkpoint_dir.empty()) server->WaitForShutdown(kSaveGrace);
  MR_RETURN_IF_ERROR(server->Stop());
  // To whoever starts tasks again its work is not done.
  return ended ? OkStatus() : errors::Cancelled("stopped by signal ", StopSignal());
}

}  // namespace millrace::mnist
