// SPDX-License-Identifier: Apache-2.0
// Clusters by name and address, and who puts which node where.
#ifndef MILLRACE_CLUSTER_H_
#define MILLRACE_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph.h"
#include "millrace/status.h"

namespace millrace {

// Jobs and the "host:port" of each of their tasks; task numbers may have gaps. A value.
class ClusterSpec {
 public:
  // Addresses of a job, by the numbers of its tasks.
  using Tasks = std::map<int, std::string>;

  // "ps|h:p;h:p,worker|h:p". InvalidArgument names the part that is wrong: an empty or
  // repeated job, an address without a port, one address for two tasks.
  static StatusOr<ClusterSpec> Parse(std::string_view text);
  // Adds a job whose task i has addresses[i]. InvalidArgument if there is one of that name, else as
  // AddTask, with the tasks before the wrong one added.
  Status AddJob(std::string_view job, const std::vector<std::string>& addresses);
  // Adds a task, and its job if need be. InvalidArgument, and nothing is added, for a name that is
  // not a letter with letters, digits and underscores behind it, a negative number, a task that has
  // an address, and an address that is malformed or another task's (but with port 0).
  Status AddTask(std::string_view job, int task, std::string_view address);

  // All jobs by name; valid as long as this, and changed by AddJob and AddTask.
  const std::map<std::string, Tasks>& jobs() const { return jobs_; }
  int num_tasks(std::string_view job) const;  // 0 for an unknown job
  // InvalidArgument "Job \"x\" was not defined in cluster", "Task N was not defined in job".
  StatusOr<std::string> Address(std::string_view job, int task) const;
  std::string ToString() const;  // the form that Parse reads

 private:
  std::map<std::string, Tasks> jobs_;
};

// Checks "host:port" with a port of 0 to 65535 and gives the pieces. InvalidArgument says
// what is wrong.
Status SplitAddress(std::string_view address, std::string* host, int* port);
// True for 127.0.0.0/8, ::1 and localhost.
bool IsLoopbackHost(std::string_view host);

// Chooses the ps task of a variable-like node.
using PsStrategy = std::function<int(const NodeView&)>;
// In turn, in order of creation.
PsStrategy RoundRobin(int num_tasks);
// The task that holds the fewest bytes so far (the lowest number among equals). Unknown
// dimensions count as 1.
PsStrategy ByteBalanced(int num_tasks);

// Which nodes go to a ps task, to which one, and where the others go.
struct ReplicaDeviceSetterOptions {
  int ps_tasks = 0;                           // 0: no ps, the setter leaves every device as it is
  std::string ps_device = "/job:ps";          // of ps_ops; the strategy adds the task
  std::string worker_device = "/job:worker";  // of all other nodes
  // True: a device requested by an inner scope overrides field by field. False: a node with
  // any request keeps it unchanged.
  bool merge_devices = true;
  std::vector<std::string> ps_ops{};  // empty: TensorFlow's list of variables and tables
  PsStrategy strategy{};              // empty: RoundRobin(ps_tasks)
};
// tf.train.replica_device_setter: variables on the ps tasks, all else on the worker.
DeviceFunction ReplicaDeviceSetter(ReplicaDeviceSetterOptions options);

}  // namespace millrace

#endif  // MILLRACE_CLUSTER_H_
