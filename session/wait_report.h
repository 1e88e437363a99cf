// SPDX-License-Identifier: Apache-2.0
// What steps wait for, of all tasks of a step or a cluster: put in order, and told to people.
#ifndef SESSION_WAIT_REPORT_H_
#define SESSION_WAIT_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/wait.h"
#include "millrace/status.h"
#include "proto/waits.pb.h"

namespace millrace {

// A task keeps no more waits than this.
inline constexpr int kMostWaits = 256;

// Adds what a step waits for in a task, or counts it if there are kMostWaits. `now` by
// SteadyNanos().
void AddWait(const Wait& wait, int64_t step_id, int64_t now, pb::TaskWaits* waits);

// One task's answer, or why there is none (`status`): Unimplemented, of a server that does not know
// the question, says nothing about the task, any other error that it does not answer.
struct TaskAnswer {
  std::string task;
  pb::TaskWaits waits;
  Status status;
};

// All waits with their tasks, culprit first. A chain of waits ends with something that waits for
// nobody: so first come tasks that do not answer or show no sign of life, then kernels and loops
// that have run for a while, then what is waited for that nobody in the report is about to bring:
// gradients, members of a collective, turns, elements of queues, values that the step of another
// task does not know of. Last come kernels that have just begun, and values of tasks that wait
// themselves. What has lasted longer comes first among equals. A task of which several say the same
// is told once.
pb::WaitReport MakeWaitReport(std::span<TaskAnswer> answers);

// "a dequeue: FIFOQueue 'q' has 0 of 1 element ({{node take}}, op QueueDequeueV2 on DEVICE, made
// at model.cc:12, for 12.3 s)".
std::string WaitText(const pb::Wait& wait);

// A line "\n  TASK: WAIT" for each of the first `most`, and for how many there are besides.
std::string WaitLines(const pb::WaitReport& report, std::size_t most);

// A late step's error carries the report under this payload, serialised: as many of its waits as
// fit beside an error that goes over the network, with texts that are cut.
inline constexpr char kWaitReportPayload[] = "type.googleapis.com/millrace.pb.WaitReport";
Status WithWaitReport(Status status, const pb::WaitReport& report);
// False if it carries none.
bool FindWaitReport(const Status& status, pb::WaitReport* report);

}  // namespace millrace

#endif  // SESSION_WAIT_REPORT_H_
