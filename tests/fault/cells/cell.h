// SPDX-License-Identifier: Apache-2.0
// The cells of the table of failures: which task fails, how, and in what kind of job.
#ifndef TESTS_FAULT_CELLS_CELL_H_
#define TESTS_FAULT_CELLS_CELL_H_

#include <string>
#include <vector>

namespace millrace::testing {

enum class Job { kAsync, kSync, kAllReduce };
// In all-reduce the chief is the leader of the group, and there is no ps, but one more member.
enum class Role { kChief, kWorker, kPs, kReader, kOther };
enum class Fault { kKill, kStop, kBlackHole, kRestart, kWrongAddress };

struct Cell {
  Job job;
  Role victim;
  Fault fault;
};

std::string JobName(Job job);
std::string RoleName(Job job, Role role);
std::string FaultName(Fault fault);
// "SyncWorkerStop".
std::string CellName(const Cell& cell);

// All 55, row by row.
std::vector<Cell> AllCells();
// Those that every run of the tests tries.
bool IsInSample(const Cell& cell);

// What a job has, in the order in which its tasks are started.
std::vector<Role> RolesOf(Job job);

}  // namespace millrace::testing

#endif  // TESTS_FAULT_CELLS_CELL_H_
