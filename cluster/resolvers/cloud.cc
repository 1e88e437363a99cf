// SPDX-License-Identifier: Apache-2.0
// Where the platform names the hosts: SageMaker and Kubernetes.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cluster/resolvers/rank_layout.h"
#include "millrace/cluster_resolver.h"

namespace millrace {
namespace {

StatusOr<std::string> Required(const Environment& environment, const std::string& name,
                               std::string_view platform) {
  const std::optional<std::string> text = environment(name);
  if (text.has_value() && !text->empty()) return *text;
  return errors::FailedPrecondition(name, " not found in environment. Not running inside ",
                                    platform, "?");
}

}  // namespace

StatusOr<ResolvedTask> ResolveSageMaker(int port, const Environment& environment) {
  constexpr char kPlatform[] = "SageMaker";
  MR_ASSIGN_OR_RETURN(const std::string list, Required(environment, "SM_HOSTS", kPlatform));
  MR_ASSIGN_OR_RETURN(const std::string self, Required(environment, "SM_CURRENT_HOST", kPlatform));
  const nlohmann::json names = nlohmann::json::parse(list, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> hosts;
  bool good = names.is_array() && !names.empty() && names.size() <= resolvers::kMostTasks;
  if (good) {
    for (const nlohmann::json& name : names) {
      good = good && name.is_string();
      if (good) hosts.push_back(name.get<std::string>());
    }
  }
  if (!good) {
    return errors::InvalidArgument("SM_HOSTS is '", list.substr(0, 200),
                                   "', not a JSON list of host names");
  }
  std::sort(hosts.begin(), hosts.end());
  const auto own = std::find(hosts.begin(), hosts.end(), self);
  if (own == hosts.end()) {
    return errors::InvalidArgument("SM_CURRENT_HOST '", self, "' is not one of SM_HOSTS");
  }
  const int rank = static_cast<int>(own - hosts.begin());
  std::vector<std::string> addresses;
  for (const std::string& host : hosts) addresses.push_back(resolvers::JoinAddress(host, port));
  return resolvers::AssignRanks({}, addresses, rank, "SageMaker");
}

StatusOr<ResolvedTask> ResolveKubernetes(const KubernetesOptions& options,
                                         const Environment& environment) {
  constexpr char kPlatform[] = "a stateful set";
  std::map<std::string, int> jobs = options.jobs;
  if (jobs.empty()) {
    MR_ASSIGN_OR_RETURN(const std::string text, Required(environment, "MILLRACE_JOBS", kPlatform));
    MR_ASSIGN_OR_RETURN(jobs, resolvers::ParseJobCounts(text, "MILLRACE_JOBS"));
  }
  std::string service = options.service;
  if (service.empty()) {
    MR_ASSIGN_OR_RETURN(service, Required(environment, "MILLRACE_SERVICE", kPlatform));
  }
  const std::optional<std::string> named = environment("POD_NAME");
  MR_ASSIGN_OR_RETURN(
      const std::string pod,
      Required(environment, named.has_value() ? "POD_NAME" : "HOSTNAME", kPlatform));

  // "<name>-<job>-<number>": the job is the longest that fits, for jobs may have dashes too.
  const size_t dash = pod.rfind('-');
  int64_t number = -1;
  std::string name, job;
  if (dash != std::string::npos && ParseInt64(std::string_view(pod).substr(dash + 1), &number)) {
    const std::string_view set = std::string_view(pod).substr(0, dash);
    for (const auto& [candidate, replicas] : jobs) {
      const std::string ending = StrCat("-", candidate);
      if (set.ends_with(ending) && candidate.size() >= job.size()) {
        job = candidate;
        name = set.substr(0, set.size() - ending.size());
      }
    }
  }
  if (job.empty() || number < 0 || number >= jobs[job]) {
    std::string known;
    for (const auto& [candidate, replicas] : jobs) {
      known +=
          StrCat(known.empty() ? "" : ", ", "<name>-", candidate, "-<0 to ", replicas - 1, ">");
    }
    return errors::InvalidArgument("the pod '", pod, "' is none of these: ", known);
  }
  ResolvedTask resolved;
  resolved.source = "Kubernetes";
  resolved.rpc_layer = "grpc";
  resolved.job_name = job;
  resolved.task_index = static_cast<int>(number);
  for (const auto& [other, replicas] : jobs) {
    for (int task = 0; task < replicas; ++task) {
      MR_RETURN_IF_ERROR(resolved.cluster.AddTask(
          other, task,
          resolvers::JoinAddress(StrCat(name, "-", other, "-", task, ".", service), options.port)));
    }
  }
  return resolved;
}

}  // namespace millrace
