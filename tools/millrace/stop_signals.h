// SPDX-License-Identifier: Apache-2.0
#ifndef TOOLS_MILLRACE_STOP_SIGNALS_H_
#define TOOLS_MILLRACE_STOP_SIGNALS_H_

#include <csignal>

namespace millrace {

// Signals that end a command which serves: SIGTERM and SIGINT. SIGPIPE is ignored.
class StopSignals {
 public:
  // From now on they are taken by Wait alone; threads that begin later inherit the mask.
  StopSignals();
  // Until one of them comes, and says so in the log. The next one ends the process at once.
  void Wait();

 private:
  sigset_t signals_;
};

}  // namespace millrace

#endif  // TOOLS_MILLRACE_STOP_SIGNALS_H_
