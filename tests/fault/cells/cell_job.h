// SPDX-License-Identifier: Apache-2.0
// A job of real processes, each on a host of its own, in which one fails.
#ifndef TESTS_FAULT_CELLS_CELL_JOB_H_
#define TESTS_FAULT_CELLS_CELL_JOB_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cluster/process.h"
#include "tests/fault/cells/cell.h"
#include "tests/fault/cells/network.h"
#include "tests/fault/cells/task_log.h"

namespace millrace::testing {

// What every task of a job is told.
struct Limits {
  double peer_timeout = 2, step_timeout = 5, ready_timeout = 5;  // seconds
};

// Not thread-safe. The processes are killed by the destructor.
class CellJob {
 public:
  // What the tasks print goes to files in `folder`. The network has the hosts that HostOf names.
  CellJob(Network* network, Job job, const Limits& limits, std::string folder);
  ~CellJob();
  CellJob(const CellJob&) = delete;
  CellJob& operator=(const CellJob&) = delete;

  static int HostOf(Role role);
  // "/job:ps/replica:0/task:0", "10.9.0.1:2222"; a client has no name.
  std::string TaskOf(Role role) const;
  static std::string AddressOf(Role role);

  void StartAll();
  void Inject(Role role, Fault fault);
  // After it the task is there, reachable, and has the right addresses.
  void Heal(Role role, Fault fault);

  std::vector<Event> EventsOf(Role role) const;
  // Until those that train have made `steps` each since then, and the client a fifth of that.
  // Empty, or who has not by `limit` seconds from now.
  std::string AwaitSteps(double since, int steps, double limit) const;
  // What the tasks said besides events, for a failure's message.
  std::string Story() const;

 private:
  void Start(Role role, bool wrong_address);
  void Kill(Role role);
  std::string LogOf(Role role) const;
  std::string Spec(Role role, bool wrong_address) const;

  Network* const network_;
  const Job job_;
  const Limits limits_;
  const std::string folder_;
  std::map<Role, std::unique_ptr<Process>> processes_;
};

}  // namespace millrace::testing

#endif  // TESTS_FAULT_CELLS_CELL_JOB_H_
