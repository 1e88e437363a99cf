// SPDX-License-Identifier: Apache-2.0
// The hosts that the jobs of all cells run on.
#ifndef TESTS_FAULT_CELLS_HOSTS_H_
#define TESTS_FAULT_CELLS_HOSTS_H_

#include <atomic>
#include <string>
#include <thread>

#include "tests/fault/cells/network.h"

namespace millrace::testing {

// Made by the first call, which must come before this process has a second thread. Null, with the
// reason, where the system lets nobody make networks.
Network* CellNetwork(std::string* why_not);

// By how many seconds a thread of this machine wakes up late, at most, while this lives.
class DelayProbe {
 public:
  DelayProbe();
  ~DelayProbe();
  DelayProbe(const DelayProbe&) = delete;
  DelayProbe& operator=(const DelayProbe&) = delete;
  double worst() const { return worst_; }

 private:
  void Watch();
  std::atomic<double> worst_{0};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace millrace::testing

#endif  // TESTS_FAULT_CELLS_HOSTS_H_
