// Notices that this process is to end soon: a machine that is wanted back, a job that is stopped.
//
//   int main() {
//     mr::WatchForPreemption();
//     ... model.Fit(..., {.callbacks = {&backup}}) ...        // saves, and returns Cancelled
//     return mr::PreemptionSignal() != 0 ? mr::PreemptionExitCode() : ...;
//   }
//
// After a notice BackupAndRestore (millrace/checkpoint_callbacks.h) writes a backup at the end of
// the step that is under way, and Fit ends with Cancelled; CheckpointSaverHook (millrace/hooks.h)
// saves and asks the training to stop. Started again, both go on from there. What that takes is one
// step and one save: the grace that the sender of the signal gives must be longer.
#ifndef MILLRACE_PREEMPTION_H_
#define MILLRACE_PREEMPTION_H_

#include <vector>

#include "millrace/status.h"

namespace millrace {

// From now on each of these signals is a notice; the second one of a kind does what it does by
// default: SIGTERM ends the process at once. InvalidArgument for a number that is no signal that
// can be caught. For the beginning of main: other handlers of these signals are replaced.
Status WatchForPreemption(const std::vector<int>& signals = {15});  // SIGTERM
// A notice from elsewhere, such as a machine's metadata; counts as that signal.
void NoticePreemption(int signal = 15);
// The signal of the first notice; 0: there was none. Async-signal-safe, as the others below.
int PreemptionSignal();
// 128 and the signal's number, as a shell has it (143 for SIGTERM); 0 without a notice. Whoever
// restarts jobs (docs/failures.md) starts a task again that ends with it.
int PreemptionExitCode();
// Forgets the notice, for a program that goes on after all.
void ForgetPreemption();

}  // namespace millrace

#endif  // MILLRACE_PREEMPTION_H_
