// SPDX-License-Identifier: Apache-2.0
// A job of several processes on this machine: each is told by its environment which task it is,
// those that fail are started again as often as allowed, and the job ends with its first cause.
#ifndef TOOLS_RUN_JOB_H_
#define TOOLS_RUN_JOB_H_

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::run {

struct JobOptions {
  // Program and arguments. {job}, {task}, {address} and, for every job, {<job>_hosts} stand for
  // what they say.
  std::vector<std::string> command{};
  // Variables that each task finds in its environment besides; {job} and so on as in `command`.
  std::map<std::string, std::string> environment{};
  // Jobs and their numbers of tasks, in the order in which they are started.
  std::vector<std::pair<std::string, int>> jobs{};
  // Those that others work with and that need not end by themselves: they are stopped when the
  // last task of the others has ended well.
  std::vector<std::string> services{"ps", "evaluator"};
  int max_restarts = 0;                           // of each task
  std::map<std::string, int> job_max_restarts{};  // of each task of a job, instead of that
  // Before a task is started again; twice as long every time, at most 30 s.
  std::chrono::milliseconds backoff{1000};
  // A task that has run so long begins with `backoff` again.
  std::chrono::milliseconds steady{60'000};
  // From SIGTERM to SIGKILL.
  std::chrono::milliseconds grace{5000};
  bool colours = false;
  // What a person sees: a task's line ("worker/0"), or one of the launcher ("run").
  std::function<void(const std::string& task, std::string_view line)> print{};
};

// Runs the job and returns its exit code: 0 once every task that is no service has ended well; else
// that of the task that failed first, whose end the last line names; 128 and the number after
// SIGINT or SIGTERM, which are passed on (a second one kills), or SIGHUP, for which tasks get
// SIGTERM; it is ignored where it was (nohup). No process is left behind.
//
// Each task finds TF_CONFIG, MILLRACE_CLUSTER_ID (of this job alone) and MILLRACE_RESTARTS (how
// often it has been started again) in its environment. Ports are free ones of the loopback.
int RunJob(const JobOptions& options);

}  // namespace millrace::run

#endif  // TOOLS_RUN_JOB_H_
