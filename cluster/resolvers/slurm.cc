// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "cluster/resolvers/rank_layout.h"
#include "millrace/cluster_resolver.h"

namespace millrace {
namespace {

using resolvers::kMostTasks;
using resolvers::RequiredNumber;

// "4(x2),1": four tasks on each of two hosts, one on the next.
StatusOr<std::vector<int>> ParseTasksPerNode(std::string_view text) {
  std::vector<int> tasks;
  const std::string_view whole = text;
  while (!text.empty()) {
    std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    int64_t count = 0, times = 1;
    bool good = true;
    const size_t open = part.find("(x");
    if (open != std::string_view::npos) {
      good =
          part.back() == ')' && ParseInt64(part.substr(open + 2, part.size() - open - 3), &times);
      part = part.substr(0, open);
    }
    good = good && ParseInt64(part, &count) && count >= 1 && count <= kMostTasks && times >= 1 &&
           times <= kMostTasks - static_cast<int64_t>(tasks.size());
    if (!good) {
      return errors::InvalidArgument("SLURM_STEP_TASKS_PER_NODE is '", whole,
                                     "', not numbers as in \"4(x2),1\"");
    }
    tasks.insert(tasks.end(), static_cast<size_t>(times), static_cast<int>(count));
  }
  return tasks;
}

// Numbers of the GPUs that the host lets this step see.
std::vector<std::string> GpusOfHost(const SlurmOptions& options, const Environment& environment) {
  std::vector<std::string> gpus;
  if (options.gpus_per_node > 0) {
    for (int i = 0; i < std::min(options.gpus_per_node, kMostTasks); ++i) {
      gpus.push_back(StrCat(i));
    }
    return gpus;
  }
  const std::optional<std::string> visible = environment("CUDA_VISIBLE_DEVICES");
  std::string_view text = visible.has_value() ? std::string_view(*visible) : std::string_view();
  while (!text.empty()) {
    const std::string_view gpu = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), gpu.size() + 1));
    if (!gpu.empty()) gpus.emplace_back(gpu);
  }
  return gpus;
}

Status ShareGpus(const SlurmOptions& options, const Environment& environment,
                 ResolvedTask* resolved) {
  const std::vector<std::string> gpus = GpusOfHost(options, environment);
  const int available = static_cast<int>(gpus.size());
  const int wanted =
      options.gpus_per_task > 0 ? options.gpus_per_task : available / resolved->local_size;
  if (int64_t{wanted} * resolved->local_size > available) {
    return errors::InvalidArgument("Requested more GPUs per node than available. ",
                                   resolved->local_size, " tasks want ", wanted,
                                   " each, and the host has ", available);
  }
  if (!options.auto_set_gpu) return OkStatus();
  for (int i = 0; i < wanted; ++i) {
    if (i > 0) resolved->visible_gpus += ',';
    resolved->visible_gpus += gpus[resolved->local_rank * wanted + i];
  }
  return OkStatus();
}

}  // namespace

StatusOr<ResolvedTask> ResolveSlurm(const SlurmOptions& options, const Environment& environment) {
  constexpr char kLauncher[] = "a SLURM step";
  MR_ASSIGN_OR_RETURN(const int rank, RequiredNumber(environment, "SLURM_PROCID", 0, kLauncher));
  MR_ASSIGN_OR_RETURN(const int size,
                      RequiredNumber(environment, "SLURM_STEP_NUM_TASKS", 1, kLauncher));
  std::string lists[2];
  const char* const names[] = {"SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"};
  for (int i = 0; i < 2; ++i) {
    const std::optional<std::string> text = environment(names[i]);
    if (!text.has_value()) {
      return errors::FailedPrecondition(names[i], " not found in environment. Not running inside ",
                                        kLauncher, "?");
    }
    lists[i] = *text;
  }
  MR_ASSIGN_OR_RETURN(std::vector<std::string> hosts, ExpandHostList(lists[0]));
  std::sort(hosts.begin(), hosts.end());
  MR_ASSIGN_OR_RETURN(const std::vector<int> tasks_per_node, ParseTasksPerNode(lists[1]));
  if (tasks_per_node.size() != hosts.size()) {
    return errors::InvalidArgument("SLURM_STEP_NODELIST names ", hosts.size(),
                                   " hosts and SLURM_STEP_TASKS_PER_NODE ", tasks_per_node.size());
  }
  std::vector<std::string> addresses;
  int local_rank = 0, local_size = 0;
  for (size_t host = 0; host < hosts.size(); ++host) {
    for (int local = 0; local < tasks_per_node[host]; ++local) {
      if (addresses.size() >= static_cast<size_t>(size)) break;
      if (addresses.size() == static_cast<size_t>(rank)) {
        local_rank = local;
        local_size = tasks_per_node[host];
      }
      addresses.push_back(resolvers::JoinAddress(hosts[host], options.port_base + local));
    }
  }
  if (addresses.size() != static_cast<size_t>(size)) {
    return errors::InvalidArgument("SLURM_STEP_NUM_TASKS is ", size,
                                   ", but SLURM_STEP_TASKS_PER_NODE adds up to ", addresses.size());
  }
  MR_ASSIGN_OR_RETURN(ResolvedTask resolved,
                      resolvers::AssignRanks(options.jobs, addresses, rank, "Slurm"));
  resolved.local_rank = local_rank;
  resolved.local_size = local_size;
  MR_RETURN_IF_ERROR(ShareGpus(options, environment, &resolved));
  return resolved;
}

}  // namespace millrace
