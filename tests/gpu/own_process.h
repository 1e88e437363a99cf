// SPDX-License-Identifier: Apache-2.0
// Tests that need a process of their own: one whose GPU is lost has no other one, and the first
// session of a process decides how memory is taken.
#ifndef TESTS_GPU_OWN_PROCESS_H_
#define TESTS_GPU_OWN_PROCESS_H_

#include <string>
#include <utility>
#include <vector>

namespace millrace::testing {

struct OwnProcess {
  std::vector<std::pair<std::string, std::string>> environment{};
  int seconds = 120;  // after which it hangs
  int signal = 0;     // that ends it; 0: it exits
};

// At the beginning of a test: `if (!InOwnProcess()) return;`
//
// False in the process that was started, which runs the test that is under way once more in
// another one, and fails it if that one fails, crashes, hangs, or does not end as `how` says; what
// it printed is shown then. The test is skipped if it is skipped there. True in the other one.
bool InOwnProcess(const OwnProcess& how = {});
// What the process printed that InOwnProcess ran last.
const std::string& OutputOfOwnProcess();

}  // namespace millrace::testing

#endif  // TESTS_GPU_OWN_PROCESS_H_
