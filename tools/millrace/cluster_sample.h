// SPDX-License-Identifier: Apache-2.0
// What the tasks of a cluster count, asked for again and again.
#ifndef TOOLS_MILLRACE_CLUSTER_SAMPLE_H_
#define TOOLS_MILLRACE_CLUSTER_SAMPLE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/status.h"
#include "observe/open_metrics.h"

namespace millrace {

// The metrics of one task at one time.
struct TaskSample {
  std::string task, address;
  int64_t nanos = 0;  // by SteadyNanos
  std::string error;  // "": it answered
  std::vector<MetricSample> metrics{};

  // The sum over all labels; 0 if there is none.
  double Sum(std::string_view name) const;
};

// The tasks of a cluster, learnt from one of them and then from all that answer. Not thread-safe.
class ClusterSampler {
 public:
  // `limit` is the time that each task has for its answer.
  ClusterSampler(std::string address, std::chrono::nanoseconds limit);

  // All tasks that are known, the one at the address first, asked at the same time; the error of
  // one that does not answer is in its sample. What they name is asked as well. The error of the
  // first one is the whole's as long as none has ever answered.
  StatusOr<std::vector<TaskSample>> Sample();

 private:
  struct Known {
    std::string task, address;
    bool answered = false;  // ever
  };
  void Learn(const TaskSample& sample);

  const std::chrono::nanoseconds limit_;
  std::vector<Known> known_;
};

// One task each, asked at the same time, by its address; `task` is what it is called if it says
// nothing.
struct TaskAddress {
  std::string task, address;
};
std::vector<TaskSample> SampleTasks(const std::vector<TaskAddress>& tasks,
                                    std::chrono::nanoseconds limit);
// "/job:worker/replica:0/task:1 at h:p: no answer within 3 s", of a sample with an error.
std::string SilenceText(const TaskSample& sample);

// A line of `millrace top`: what a task did between two samples.
struct TaskRow {
  std::string task, address;
  std::string error;
  double steps_per_second = 0, examples_per_second = 0, step_seconds = 0;
  double failed_per_second = 0, calls_per_second = 0, received_per_second = 0;
  double waits = 0;         // values it waits for right now
  std::string waits_for;    // the task of most of them
  double wait_seconds = 0;  // mean time until a value was there, in between
  double resident_bytes = 0, tensor_bytes = 0, cpus = 0;
};
TaskRow MakeRow(const TaskSample& before, const TaskSample& now);
// By task; one that was not there before has no rates.
std::vector<TaskRow> MakeRows(const std::vector<TaskSample>& before,
                              const std::vector<TaskSample>& now);

std::string RowsToText(const std::vector<TaskRow>& rows);
// One line.
std::string RowsToJson(const std::vector<TaskRow>& rows);

}  // namespace millrace

#endif  // TOOLS_MILLRACE_CLUSTER_SAMPLE_H_
