// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/cells/cell.h"

#include <algorithm>
#include <cctype>

namespace millrace::testing {

std::string JobName(Job job) {
  switch (job) {
    case Job::kAsync:
      return "async";
    case Job::kSync:
      return "sync";
    case Job::kAllReduce:
      return "all-reduce";
  }
  return "";
}

std::string RoleName(Job job, Role role) {
  switch (role) {
    case Role::kChief:
      return job == Job::kAllReduce ? "leader" : "chief";
    case Role::kWorker:
      return job == Job::kAllReduce ? "member" : "worker";
    case Role::kPs:
      return "ps";
    case Role::kReader:
      return "client";
    case Role::kOther:
      return "other member";
  }
  return "";
}

std::string FaultName(Fault fault) {
  switch (fault) {
    case Fault::kKill:
      return "kill -9";
    case Fault::kStop:
      return "SIGSTOP";
    case Fault::kBlackHole:
      return "black hole";
    case Fault::kRestart:
      return "restart";
    case Fault::kWrongAddress:
      return "wrong address";
  }
  return "";
}

std::string CellName(const Cell& cell) {
  std::string name;
  for (const std::string& part :
       {JobName(cell.job), RoleName(cell.job, cell.victim), FaultName(cell.fault)}) {
    bool upper = true;
    for (const char c : part) {
      const auto letter = static_cast<unsigned char>(c);
      if (std::isalnum(letter) != 0) name += static_cast<char>(upper ? std::toupper(letter) : c);
      upper = std::isalnum(letter) == 0;
    }
  }
  return name;
}

std::vector<Role> RolesOf(Job job) {
  if (job == Job::kAllReduce) {
    return {Role::kChief, Role::kWorker, Role::kOther, Role::kReader};
  }
  return {Role::kPs, Role::kChief, Role::kWorker, Role::kReader};
}

std::vector<Cell> AllCells() {
  std::vector<Cell> cells;
  for (const Job job : {Job::kAsync, Job::kSync, Job::kAllReduce}) {
    for (const Role role : {Role::kChief, Role::kWorker, Role::kPs, Role::kReader}) {
      if (job == Job::kAllReduce && role == Role::kPs) continue;
      for (const Fault fault :
           {Fault::kKill, Fault::kStop, Fault::kBlackHole, Fault::kRestart, Fault::kWrongAddress}) {
        cells.push_back({job, role, fault});
      }
    }
  }
  return cells;
}

bool IsInSample(const Cell& cell) {
  constexpr Cell kSample[] = {{Job::kAsync, Role::kPs, Fault::kBlackHole},
                              {Job::kAsync, Role::kChief, Fault::kWrongAddress},
                              {Job::kSync, Role::kWorker, Fault::kStop},
                              {Job::kSync, Role::kChief, Fault::kKill},
                              {Job::kAllReduce, Role::kWorker, Fault::kRestart}};
  return std::any_of(std::begin(kSample), std::end(kSample), [&cell](const Cell& other) {
    return other.job == cell.job && other.victim == cell.victim && other.fault == cell.fault;
  });
}

}  // namespace millrace::testing
