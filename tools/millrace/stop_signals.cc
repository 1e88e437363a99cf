// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/stop_signals.h"

#include <pthread.h>
#include <signal.h>

#include "base/log.h"

namespace millrace {

StopSignals::StopSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

void StopSignals::Wait() {
  int number = 0;
  sigwait(&signals_, &number);
  MR_LOG(kInfo, "stopping");
  pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
}

}  // namespace millrace
