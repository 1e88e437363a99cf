// SPDX-License-Identifier: Apache-2.0
// Ranks in threads of one process, each with a server of its own.
#ifndef TESTS_RANKS_RANKS_IN_PROCESS_H_
#define TESTS_RANKS_RANKS_IN_PROCESS_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "millrace/collectives.h"
#include "millrace/local_cluster.h"

namespace millrace::testing {

class RanksInProcess {
 public:
  explicit RanksInProcess(int size, const CommunicationOptions& communication = {})
      : cluster_(LocalCluster::Start({.workers = size}).value()), communication_(communication) {
    groups_.resize(static_cast<std::size_t>(size));
    statuses_ = All([this](int rank) {
      auto group = ProcessGroup::Create(OptionsOf(rank));
      if (group.ok()) groups_[static_cast<std::size_t>(rank)] = *group;
      return group.status();
    });
  }

  int size() const { return static_cast<int>(groups_.size()); }
  LocalCluster& cluster() { return *cluster_; }
  // How each rank began.
  const std::vector<Status>& statuses() const { return statuses_; }
  const std::shared_ptr<ProcessGroup>& group(int rank) const {
    return groups_[static_cast<std::size_t>(rank)];
  }
  ProcessGroupOptions OptionsOf(int rank) const {
    return {.task = {.cluster = cluster_->spec(), .job_name = "worker", .task_index = rank},
            .target = cluster_->target("worker", rank),
            .communication = communication_};
  }

  // What `call` says at each rank, all at once.
  std::vector<Status> All(const std::function<Status(int rank)>& call) const {
    std::vector<Status> statuses(groups_.size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] { statuses[static_cast<std::size_t>(rank)] = call(rank); });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }

 private:
  const std::unique_ptr<LocalCluster> cluster_;
  const CommunicationOptions communication_;
  std::vector<std::shared_ptr<ProcessGroup>> groups_;
  std::vector<Status> statuses_;
};

}  // namespace millrace::testing

#endif  // TESTS_RANKS_RANKS_IN_PROCESS_H_
