// SPDX-License-Identifier: Apache-2.0
#include "planner/cluster_source.h"

#include <cstdlib>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cluster/tf_config.h"
#include "device/device_name.h"
#include "millrace/cluster.h"
#include "planner/text_input.h"
#include "proto/cluster.pb.h"

namespace millrace {
namespace {

constexpr int kMostTasks = 100'000;

std::optional<ClusterJobs> ParseCounts(std::string_view text) {
  ClusterJobs jobs;
  for (const std::string_view part : StrSplit(text, ',')) {
    const std::size_t colon = part.find(':');
    int64_t count = 0;
    if (colon == std::string_view::npos || colon == 0 ||
        !ParseInt64(part.substr(colon + 1), &count) || count < 1 || count > kMostTasks) {
      return std::nullopt;
    }
    for (int i = 0; i < count; ++i) jobs[std::string(part.substr(0, colon))].insert(i);
  }
  return jobs;
}

ClusterJobs ToJobs(const ClusterSpec& cluster) {
  ClusterJobs jobs;
  for (const auto& [job, tasks] : cluster.jobs()) {
    for (const auto& [task, address] : tasks) jobs[job].insert(task);
  }
  return jobs;
}

StatusOr<ClusterJobs> ToJobs(const pb::ClusterDef& def) {
  ClusterJobs jobs;
  for (const pb::JobDef& job : def.job()) {
    for (const auto& [task, address] : job.tasks()) {
      if (task < 0) return errors::InvalidArgument("job ", job.name(), " has a task ", task);
      jobs[job.name()].insert(task);
    }
  }
  return jobs;
}

StatusOr<ClusterJobs> ParseConfig(std::string_view json) {
  MR_ASSIGN_OR_RETURN(const TfConfig config, ParseTfConfig(json));
  return ToJobs(config.cluster);
}

StatusOr<ClusterJobs> ParseFile(const std::string& path, const std::string& bytes) {
  if (StripWhitespace(bytes.substr(0, 4096)).starts_with("{")) return ParseConfig(bytes);
  pb::ClusterDef def;
  std::string error;
  const bool is_text = LooksLikeText(bytes);
  if (is_text && ParseTextMessage(bytes, &def, &error) && def.job_size() > 0) return ToJobs(def);
  // Its text parses as the message only by accident; its bytes hold a job with a name.
  if (!is_text || bytes[0] == '\n') {
    if (def.ParseFromString(bytes) && def.job_size() > 0 && !def.job(0).name().empty()) {
      return ToJobs(def);
    }
  }
  return errors::InvalidArgument(path, " holds neither the JSON of TF_CONFIG nor a ClusterDef",
                                 error.empty() ? "" : StrCat(": ", error));
}

}  // namespace

StatusOr<ClusterJobs> ReadCluster(const std::string& text) {
  if (text.empty()) {
    const char* const config = std::getenv("TF_CONFIG");
    if (config == nullptr || *config == '\0') return ClusterJobs();
    return ParseConfig(config);
  }
  if (std::optional<ClusterJobs> counts = ParseCounts(text)) return *std::move(counts);
  if (text.find('|') != std::string::npos) {
    MR_ASSIGN_OR_RETURN(const ClusterSpec cluster, ClusterSpec::Parse(text));
    return ToJobs(cluster);
  }
  const StatusOr<std::string> file = ReadInput(text);
  if (!file.ok()) {
    return errors::InvalidArgument("'", text,
                                   "' is neither \"job:tasks,...\" nor \"job|host:port;...\" nor a "
                                   "file that can be read");
  }
  MR_ASSIGN_OR_RETURN(ClusterJobs jobs, ParseFile(text, *file));
  if (jobs.empty()) return errors::InvalidArgument(text, " names no task");
  return jobs;
}

StatusOr<std::string> FindMaster(const std::string& wanted, const ClusterJobs& jobs) {
  if (wanted.empty()) {
    for (const char* job : {"chief", "master", "worker"}) {
      const auto found = jobs.find(job);
      if (found != jobs.end()) return MakeTaskName(job, *found->second.begin());
    }
    return MakeTaskName(jobs.begin()->first, *jobs.begin()->second.begin());
  }
  MR_ASSIGN_OR_RETURN(const DeviceName name, DeviceName::Parse(wanted));
  const auto found = name.job ? jobs.find(*name.job) : jobs.end();
  const int task = name.task.value_or(0);
  if (found == jobs.end() || found->second.count(task) == 0) {
    return errors::InvalidArgument("the cluster has no task ", wanted);
  }
  return MakeTaskName(*name.job, task);
}

}  // namespace millrace
