// SPDX-License-Identifier: Apache-2.0
// What a task of a failure cell is told, and what it tells: one line per event.
#ifndef TESTS_FAULT_CELLS_TASK_FLAGS_H_
#define TESTS_FAULT_CELLS_TASK_FLAGS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "millrace/server.h"
#include "millrace/status.h"

namespace millrace::testing {

struct TaskFlags {
  std::string role;  // "ps", "worker", "reader" or "member"
  int index = 0;
  std::string spec;    // of the cluster; not for readers
  std::string target;  // for readers
  std::string reads;   // for readers: the task whose variables they read, "/job:ps/task:0"
  bool sync = false;
  std::chrono::milliseconds peer_timeout{2'000}, step_timeout{5'000}, ready_timeout{5'000};
};

// "--name=value" each; InvalidArgument for anything else.
StatusOr<TaskFlags> ParseTaskFlags(int argc, char** argv);

// The server of the task.
StatusOr<std::unique_ptr<Server>> StartTask(const TaskFlags& flags);

// What a task does, on a line of its own:
//   "@ KIND AT TOOK STEP LOSS CODE TEXT"
// AT and TOOK in seconds, of the clock that all processes of a machine share.
class Reporter {
 public:
  // From here on something is waited for.
  void Begin();
  void Step(int64_t global_step, float loss);  // KIND "step"
  // KIND "ready" and "error" for a session, "step_error" for a step.
  void Ready();
  void Error(const char* kind, const Status& status);

 private:
  void Print(const char* kind, int64_t step, float loss, const Status& status) const;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

// Training with a ps, reading its variables, and training by all-reduce; none returns unless
// something is wrong with the program itself.
Status RunTrainingWorker(const TaskFlags& flags);
Status RunReader(const TaskFlags& flags);
Status RunMember(const TaskFlags& flags);

}  // namespace millrace::testing

#endif  // TESTS_FAULT_CELLS_TASK_FLAGS_H_
