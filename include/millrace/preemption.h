// SPDX-License-Identifier: Apache-2.0
// Notices that this process is to end soon: a machine that is wanted back, a job that is stopped.
//
//   int main() {
//     mr::WatchForPreemption();
//     ... model.Fit(..., {.callbacks = {&backup}}) ...        // saves, and returns Cancelled
//     return mr::PreemptionSignal() != 0 ? mr::PreemptionExitCode() : ...;
//   }
//
// After a notice every loop of the library ends with the step that is under way. Fit returns
// Cancelled, after BackupAndRestore (millrace/checkpoint_callbacks.h), if it is there, has written
// a backup. ShouldStop of a MonitoredSession and a Supervisor is true: CheckpointSaverHook
// (millrace/hooks.h) and a chief's Supervisor save, RunUntilStop returns OK, and waits for a chief
// or a checkpoint are Cancelled. RunSidecarEvaluator and CheckpointsIterator take nothing more.
// Evaluate and Predict are Cancelled after the batch; so is what a ClusterCoordinator runs, and
// waits for tasks and ranks that are not there. Coordinator::Join asks its threads to stop, and
// Server::WaitForShutdown without a limit returns after two seconds. Of workers that train together
// all end when one is told to: Fit does that, and dp::ShouldStop (millrace/data_parallel.h).
// Started again, all go on from what was saved. What that takes is one step and one save: the grace
// that the sender of the signal gives must be longer. A loop of your own looks at PreemptionSignal
// or CheckPreemption. docs/failures.md has a table of all.
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
// The signal of the first notice; 0: there was none. Async-signal-safe, as NoticePreemption,
// PreemptionExitCode and ForgetPreemption are.
int PreemptionSignal();
// Cancelled "this process is to end (signal 15)" after a notice, else OK.
Status CheckPreemption();
// 128 and the signal's number, as a shell has it (143 for SIGTERM); 0 without a notice. Whoever
// restarts jobs (docs/failures.md) starts a task again that ends with it.
int PreemptionExitCode();
// Forgets the notice, for a program that goes on after all.
void ForgetPreemption();

}  // namespace millrace

#endif  // MILLRACE_PREEMPTION_H_
