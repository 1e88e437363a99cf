// SPDX-License-Identifier: Apache-2.0
// What programs that start others share: the first calls of a child, the words for its end.
#ifndef BASE_CHILD_PROCESS_H_
#define BASE_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>

namespace millrace {

// In the child, between fork and exec: only async-signal-safe calls. A group of its own, which dies
// with the thread that forked in `parent`; `output` for both outputs, nothing to read, no signal
// blocked.
void EnterChild(pid_t parent, int output);

// "exit code 1" or "signal 9 (Killed)", of what waitpid reported.
std::string DescribeEnd(int wait_status);

}  // namespace millrace

#endif  // BASE_CHILD_PROCESS_H_
