// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "examples/mnist/task.h"

namespace millrace::mnist {
namespace {
std::atomic<int> stop_signal{0};
constexpr int kGraceSeconds = 5;
}  // namespace

void StopOnSignals() {
  // Signals go to one thread that waits for them: no handler, no restrictions on what it does.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    int number = 0;
    if (sigwait(&signals, &number) != 0) return;
    stop_signal = number;
    const timespec grace{.tv_sec = kGraceSeconds, .tv_nsec = 0};
    sigtimedwait(&signals, nullptr, &grace);  // a second signal: at once
    _exit(128 + number);
  }).detach();
}

int StopSignal() { return stop_signal; }

}  // namespace millrace::mnist
