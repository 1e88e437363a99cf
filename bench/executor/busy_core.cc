// SPDX-License-Identifier: Apache-2.0
#include "bench/executor/busy_core.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "base/log.h"

namespace millrace {

BusyCore::BusyCore() {
  cpu_set_t all, last;
  MR_CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
  CPU_ZERO(&last);
  for (int i = CPU_SETSIZE - 1; i >= 0 && CPU_COUNT(&last) == 0; --i) {
    if (CPU_ISSET(i, &all)) CPU_SET(i, &last);
  }
  child_ = fork();
  MR_CHECK(child_ >= 0);
  if (child_ != 0) return;
  // Other threads' locks are as they were: nothing here takes one.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) _exit(1);
  if (sched_setaffinity(0, sizeof(last), &last) != 0) _exit(1);
  for (std::atomic<unsigned> i = 0;;) i.fetch_add(1, std::memory_order_relaxed);
}

BusyCore::~BusyCore() {
  kill(child_, SIGKILL);
  int status = 0;
  MR_CHECK(waitpid(child_, &status, 0) == child_);
  // It ended before it was told to: then nothing was busy.
  MR_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

}  // namespace millrace
