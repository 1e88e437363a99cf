// SPDX-License-Identifier: Apache-2.0
#include "strategy/workers.h"

#include <cstring>
#include <memory>

#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

// All strategies of a cluster are one group: it has the same members. What they tell each other
// first is another one, with keys behind those of graphs and before those of process groups.
constexpr int64_t kGroupKey = 1, kFirstGroupKey = 2;
constexpr int64_t kFirstInstanceKey = 65'200, kInstanceKeys = 100;

const char* NameOf(GradientCompression compression) {
  return compression == GradientCompression::kNone   ? "none"
         : compression == GradientCompression::kFp16 ? "fp16"
                                                     : "bfloat16";
}

// What all workers must say alike: they would make other collectives, or cut batches otherwise.
std::string MustBeEqual(const StrategyOptions& options) {
  const CommunicationOptions& c = options.communication;
  return StrCat(
      "multi_worker_mirrored with deterministic = ",
      options.deterministic ? StrCat("true, micro_batches = ", options.micro_batches) : "false",
      ", bytes_per_pack = ", c.bytes_per_pack,
      ", implementation = ", CommunicationHint(c.implementation),
      ", compression = ", NameOf(c.compression));
}

}  // namespace

StatusOr<std::vector<GroupMember>> WorkersOf(const ResolvedTask& task) {
  const ClusterSpec& cluster = task.cluster;
  std::vector<GroupMember> workers;
  if (task.job_name == "evaluator") {
    workers.push_back({.name = "the evaluator"});
    return workers;
  }
  for (const char* job : {"chief", "worker"}) {
    const auto tasks = cluster.jobs().find(job);
    if (tasks == cluster.jobs().end()) continue;
    int next = 0;
    for (const auto& [index, address] : tasks->second) {
      if (index != next++) {
        return errors::InvalidArgument("tasks of the cluster ", cluster.ToString(),
                                       " must be numbered without gaps to train together");
      }
      const std::string name = StrCat("/job:", job, "/replica:0/task:", index);
      workers.push_back({StrCat("worker ", workers.size(), " (", name, ")"), name, address});
    }
  }
  return workers;
}

MemberNodes::Group GroupOf(const std::vector<GroupMember>& workers, int rank) {
  std::vector<std::string> tasks;
  for (const GroupMember& worker : workers) tasks.push_back(worker.task);
  return {.size = static_cast<int>(workers.size()),
          .rank = rank,
          .key = kGroupKey,
          .places = PlacesOf(tasks)};
}

StatusOr<std::vector<int>> DevicesOfAll(const std::vector<GroupMember>& workers, int rank, int own,
                                        const std::string& target, const StrategyOptions& options) {
  if (workers.size() == 1) return std::vector<int>{own};
  Exchange::Options of_exchange{
      .group = GroupOf(workers, rank),
      .members = workers,
      .target = target,
      .communication = {.implementation = CommunicationImplementation::kRing}};
  of_exchange.group.key = kFirstGroupKey;
  of_exchange.group.first_instance_key = kFirstInstanceKey;
  of_exchange.group.instance_keys = kInstanceKeys;
  const auto limit = options.start_timeout;
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Exchange> exchange, Exchange::Open(of_exchange, limit));
  MR_LOG(kInfo, workers[static_cast<std::size_t>(rank)].name, " of ", workers.size(), " at ",
         target, " waits for the others, for ", limit.count(), " ms at most");
  const auto count = static_cast<int32_t>(own);
  RankCall call = MakeCall(MustBeEqual(options), {}, "");
  call.payload_bytes = sizeof(count);
  MR_ASSIGN_OR_RETURN(const std::vector<RankCall> calls, exchange->Meet(call, limit));
  std::string bytes(sizeof(count), '\0');
  std::memcpy(bytes.data(), &count, sizeof(count));
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> parts, exchange->Gather(bytes, calls, limit));
  std::vector<int> all;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    int32_t said = 0;
    if (parts[i].size() == sizeof(said)) std::memcpy(&said, parts[i].data(), sizeof(said));
    if (said < 1) {
      return errors::Internal(workers[i].name, " does not say how many devices it trains with");
    }
    all.push_back(said);
  }
  return all;
}

}  // namespace millrace
