// SPDX-License-Identifier: Apache-2.0
// Programs that give the same under every strategy.
#ifndef TESTS_STRATEGY_CONFORMANCE_PROGRAMS_H_
#define TESTS_STRATEGY_CONFORMANCE_PROGRAMS_H_

#include <string>
#include <vector>

#include "tests/strategy_conformance/settings.h"

namespace millrace::testing {

struct NamedProgram {
  std::string name;
  // `directory` is the test's own, the same for all processes.
  std::function<Results(const std::shared_ptr<Strategy>& strategy, const std::string& directory)>
      run;
};

std::vector<NamedProgram> AllPrograms();

}  // namespace millrace::testing

#endif  // TESTS_STRATEGY_CONFORMANCE_PROGRAMS_H_
