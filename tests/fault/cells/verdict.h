// SPDX-License-Identifier: Apache-2.0
// What the survivors of a failure saw, held against what they were promised.
#ifndef TESTS_FAULT_CELLS_VERDICT_H_
#define TESTS_FAULT_CELLS_VERDICT_H_

#include <string>
#include <vector>

#include "tests/fault/cells/cell.h"
#include "tests/fault/cells/cell_job.h"

namespace millrace::testing {

// Seconds of the clock of events.
struct Times {
  double injected = 0, healed = 0, trained = 0;
  double slack = 0;  // by how much the machine itself was late
};

struct Verdict {
  std::vector<std::string> broken;  // promises, and how
  // For the table.
  std::string noticed;      // by whom and as what
  double longest_wait = 0;  // of all survivors
  double allowed = 0;       // for that one
};

Verdict Judge(const Cell& cell, const CellJob& job, const Limits& limits, const Times& times);

}  // namespace millrace::testing

#endif  // TESTS_FAULT_CELLS_VERDICT_H_
