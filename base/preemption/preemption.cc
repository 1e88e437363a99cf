// SPDX-License-Identifier: Apache-2.0
#include "millrace/preemption.h"

#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/errors.h"
#include "base/preemption/preemption_bell.h"

namespace millrace {
namespace {

// Lock-free: it is set in a signal handler.
std::atomic<int> notice{0};
static_assert(std::atomic<int>::is_always_lock_free);

void OnSignal(int signal) { NoticePreemption(signal); }

}  // namespace

Status WatchForPreemption(const std::vector<int>& signals) {
  for (const int signal : signals) {
    struct sigaction action{};
    action.sa_handler = OnSignal;
    // Calls that wait go on, and the next one of its kind finds the default.
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigemptyset(&action.sa_mask);
    if (sigaction(signal, &action, nullptr) != 0) {
      return errors::InvalidArgument("signal ", signal,
                                     " cannot be watched for: ", std::strerror(errno));
    }
  }
  return OkStatus();
}

void NoticePreemption(int signal) {
  int none = 0;
  notice.compare_exchange_strong(none, signal);
  RingPreemptionBell();
}

int PreemptionSignal() { return notice.load(); }

Status CheckPreemption() {
  const int signal = PreemptionSignal();
  if (signal == 0) return OkStatus();
  return errors::Cancelled("this process is to end (signal ", signal, ")");
}

int PreemptionExitCode() {
  constexpr int kEndedBySignal = 128;
  const int signal = PreemptionSignal();
  return signal == 0 ? 0 : kEndedBySignal + signal;
}

void ForgetPreemption() { notice.store(0); }

}  // namespace millrace
