// SPDX-License-Identifier: Apache-2.0
// Clusters that exist only on paper, in whatever form somebody has one.
#ifndef PLANNER_CLUSTER_SOURCE_H_
#define PLANNER_CLUSTER_SOURCE_H_

#include <map>
#include <set>
#include <string>

#include "millrace/status.h"

namespace millrace {

using ClusterJobs = std::map<std::string, std::set<int>>;  // tasks by job

// "ps:2,worker:3" (numbers of tasks), "ps|h:p;h:p,worker|h:p", or a file: the JSON of
// TF_CONFIG, or a ClusterDef, binary or text. "": what the variable TF_CONFIG says, and if there
// is none, no jobs. InvalidArgument if it is none of these.
StatusOr<ClusterJobs> ReadCluster(const std::string& text);

// The name of a task, "/job:J/replica:0/task:T": the wanted one ("/job:J/task:T"), and for ""
// the one at which a session would be opened, the first chief, master, worker or other task.
// InvalidArgument if there is no such task. `jobs` must not be empty.
StatusOr<std::string> FindMaster(const std::string& wanted, const ClusterJobs& jobs);

}  // namespace millrace

#endif  // PLANNER_CLUSTER_SOURCE_H_
