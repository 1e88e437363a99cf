// SPDX-License-Identifier: Apache-2.0
#include "cluster/resolvers/rank_layout.h"

#include <cstdint>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace::resolvers {

StatusOr<int> RequiredNumber(const Environment& environment, const std::string& name, int least,
                             std::string_view launcher) {
  const std::optional<std::string> text = environment(name);
  if (!text.has_value()) {
    return errors::FailedPrecondition(name, " not found in environment. Not running inside ",
                                      launcher, "?");
  }
  int64_t number = 0;
  if (!ParseInt64(*text, &number) || number < least || number > kMostTasks) {
    return errors::InvalidArgument(name, " is '", *text, "', not a number of ", least, " to ",
                                   kMostTasks);
  }
  return static_cast<int>(number);
}

StatusOr<ResolvedTask> AssignRanks(const std::map<std::string, int>& jobs,
                                   const std::vector<std::string>& addresses, int rank,
                                   std::string_view source) {
  const int size = static_cast<int>(addresses.size());
  if (rank < 0 || rank >= size) {
    return errors::InvalidArgument(source, ": rank ", rank, " is not one of ", size);
  }
  const std::map<std::string, int> all_workers = {{"worker", size}};
  const std::map<std::string, int>& filled = jobs.empty() ? all_workers : jobs;
  int64_t requested = 0;
  for (const auto& [job, tasks] : filled) {
    if (tasks < 0) return errors::InvalidArgument("job '", job, "' has ", tasks, " tasks");
    requested += tasks;
  }
  if (requested != size) {
    return errors::InvalidArgument("Requested ", requested, " tasks but only ", size,
                                   " were assigned.");
  }
  ResolvedTask resolved;
  resolved.source = source;
  resolved.rpc_layer = "grpc";
  int next = 0;
  for (const auto& [job, tasks] : filled) {
    for (int task = 0; task < tasks; ++task, ++next) {
      MR_RETURN_IF_ERROR(resolved.cluster.AddTask(job, task, addresses[next]));
      if (next != rank) continue;
      resolved.job_name = job;
      resolved.task_index = task;
    }
  }
  return resolved;
}

std::string JoinAddress(std::string_view host, int port) {
  const bool bare_ipv6 = host.find(':') != std::string_view::npos && host.front() != '[';
  return bare_ipv6 ? StrCat("[", host, "]:", port) : StrCat(host, ":", port);
}

StatusOr<std::map<std::string, int>> ParseJobCounts(std::string_view text,
                                                    std::string_view variable) {
  std::map<std::string, int> jobs;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(part.size() == text.size() ? part.size() : part.size() + 1);
    const size_t equals = part.find('=');
    int64_t count = 0;
    if (equals == std::string_view::npos || equals == 0 ||
        !ParseInt64(part.substr(equals + 1), &count) || count < 1 || count > kMostTasks ||
        !jobs.emplace(part.substr(0, equals), static_cast<int>(count)).second) {
      return errors::InvalidArgument(variable, ": '", part,
                                     "' is not a job and its number of tasks, as in ",
                                     "\"ps=2,worker=3\"");
    }
  }
  return jobs;
}

}  // namespace millrace::resolvers
