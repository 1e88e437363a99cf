// SPDX-License-Identifier: Apache-2.0
#include "tools/millrace/cluster_sample.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "observe/page.h"
#include "tools/millrace/observe_commands.h"

namespace millrace {
namespace {

// Asks one task; what goes wrong is in the sample.
TaskSample SampleTask(const TaskAddress& task, std::chrono::nanoseconds limit) {
  TaskSample sample;
  sample.task = task.task;
  sample.address = task.address;
  const StatusOr<std::string> text = ReadPageOf(task.address, "/metrics", limit);
  sample.nanos = SteadyNanos();
  if (!text.ok()) {
    const std::string why(Message(text.status()));
    sample.error = errors::IsDeadlineExceeded(text.status()) ? why : StrCat("no answer: ", why);
    return sample;
  }
  StatusOr<std::vector<MetricSample>> metrics = ParseOpenMetrics(*text);
  if (!metrics.ok()) {
    sample.error = Message(metrics.status());
    return sample;
  }
  sample.metrics = *std::move(metrics);
  for (const MetricSample& metric : sample.metrics) {
    if (metric.name == "millrace_task_info") sample.task = metric.Label("task");
  }
  return sample;
}

std::string Padded(std::string text, std::size_t width, bool to_the_right) {
  if (text.size() < width) text.insert(to_the_right ? 0 : text.size(), width - text.size(), ' ');
  return text;
}

std::string Rate(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), value < 100 ? "%.1f" : "%.0f", value);
  return text;
}

}  // namespace

double TaskSample::Sum(std::string_view name) const {
  double sum = 0;
  for (const MetricSample& metric : metrics) {
    if (metric.name == name) sum += metric.value;
  }
  return sum;
}

std::vector<TaskSample> SampleTasks(const std::vector<TaskAddress>& tasks,
                                    std::chrono::nanoseconds limit) {
  std::vector<TaskSample> samples(tasks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    threads.emplace_back([&, i] { samples[i] = SampleTask(tasks[i], limit); });
  }
  for (std::thread& thread : threads) thread.join();
  return samples;
}

std::string SilenceText(const TaskSample& sample) {
  return StrCat(sample.task.empty() ? "the task" : sample.task, " at ", sample.address, ": ",
                sample.error);
}

ClusterSampler::ClusterSampler(std::string address, std::chrono::nanoseconds limit)
    : limit_(limit) {
  known_.push_back({"", std::move(address)});
}

void ClusterSampler::Learn(const TaskSample& sample) {
  std::map<std::string, std::string> others;
  for (const MetricSample& metric : sample.metrics) {
    if (metric.name != "millrace_peer_info") continue;
    others[std::string(metric.Label("peer"))] = metric.Label("address");
  }
  for (const auto& [task, address] : others) {
    const bool is_new = std::none_of(known_.begin(), known_.end(), [&](const Known& known) {
      return known.task == task || known.address == address;
    });
    if (is_new) known_.push_back({task, address});
  }
}

StatusOr<std::vector<TaskSample>> ClusterSampler::Sample() {
  std::vector<TaskSample> samples;
  // Who is learnt from an answer is asked next.
  while (samples.size() < known_.size()) {
    const std::size_t begin = samples.size();
    std::vector<TaskAddress> tasks;
    for (std::size_t i = begin; i < known_.size(); ++i) {
      tasks.push_back({known_[i].task, known_[i].address});
    }
    for (TaskSample& sample : SampleTasks(tasks, limit_)) samples.push_back(std::move(sample));
    for (std::size_t i = begin; i < samples.size(); ++i) {
      known_[i].task = samples[i].task;
      if (!samples[i].error.empty()) {
        if (known_[i].answered) samples[i].error = StrCat("lost, ", samples[i].error);
        continue;
      }
      known_[i].answered = true;
    }
    for (std::size_t i = begin; i < samples.size(); ++i) Learn(samples[i]);
  }
  if (std::none_of(known_.begin(), known_.end(), [](const Known& one) { return one.answered; })) {
    return errors::Unavailable(SilenceText(samples[0]));
  }
  return samples;
}

TaskRow MakeRow(const TaskSample& before, const TaskSample& now) {
  TaskRow row;
  row.task = now.task;
  row.address = now.address;
  row.error = now.error;
  if (!now.error.empty()) return row;
  const double seconds = static_cast<double>(now.nanos - before.nanos) * 1e-9;
  // A task that was started again counts from 0.
  const auto grown = [&](const char* name) {
    return before.metrics.empty() ? 0 : std::max(now.Sum(name) - before.Sum(name), 0.0);
  };
  const auto rate = [&](const char* name) { return seconds > 0 ? grown(name) / seconds : 0; };
  const auto mean = [&](const char* sum, const char* count) {
    return grown(count) > 0 ? grown(sum) / grown(count) : 0;
  };
  row.steps_per_second = rate("millrace_steps_total");
  row.examples_per_second = rate("millrace_examples_total");
  row.failed_per_second = rate("millrace_steps_failed_total");
  row.step_seconds = mean("millrace_step_seconds_sum", "millrace_step_seconds_count");
  row.calls_per_second = rate("millrace_rpc_calls_total");
  row.received_per_second = rate("millrace_peer_received_bytes_total");
  row.wait_seconds =
      mean("millrace_peer_receive_seconds_sum", "millrace_peer_receive_seconds_count");
  row.waits = now.Sum("millrace_peer_receives_waiting");
  double most = 0;
  for (const MetricSample& metric : now.metrics) {
    if (metric.name != "millrace_peer_receives_waiting" || metric.value <= most) continue;
    most = metric.value;
    row.waits_for = metric.Label("peer");
  }
  row.resident_bytes = now.Sum("process_resident_memory_bytes");
  // CPU devices share one allocator.
  for (const MetricSample& metric : now.metrics) {
    if (metric.name == "millrace_tensor_bytes") {
      row.tensor_bytes = std::max(row.tensor_bytes, metric.value);
    }
  }
  row.cpus = rate("process_cpu_seconds_total");
  return row;
}

std::vector<TaskRow> MakeRows(const std::vector<TaskSample>& before,
                              const std::vector<TaskSample>& now) {
  std::vector<TaskRow> rows;
  for (const TaskSample& sample : now) {
    const auto same = std::find_if(before.begin(), before.end(), [&](const TaskSample& other) {
      return other.address == sample.address;
    });
    rows.push_back(MakeRow(same == before.end() ? TaskSample() : *same, sample));
  }
  return rows;
}

std::string RowsToText(const std::vector<TaskRow>& rows) {
  const std::vector<std::string> names = {"task",     "steps/s", "examples/s", "step",
                                          "failed/s", "calls/s", "got/s",      "wait",
                                          "waiting",  "memory",  "tensors",    "cpus"};
  std::vector<std::vector<std::string>> lines = {names};
  for (const TaskRow& row : rows) {
    if (!row.error.empty()) {
      lines.push_back({row.task, StrCat("at ", row.address, ": ", row.error.substr(0, 120))});
      continue;
    }
    lines.push_back({row.task, Rate(row.steps_per_second), Rate(row.examples_per_second),
                     row.step_seconds > 0 ? DurationText(row.step_seconds) : "",
                     Rate(row.failed_per_second), Rate(row.calls_per_second),
                     BytesText(row.received_per_second),
                     row.wait_seconds > 0 ? DurationText(row.wait_seconds) : "",
                     row.waits > 0 ? StrCat(Rate(row.waits), " for ", row.waits_for) : "0",
                     BytesText(row.resident_bytes), BytesText(row.tensor_bytes), Rate(row.cpus)});
  }
  std::vector<std::size_t> widths(names.size());
  for (const auto& line : lines) {
    for (std::size_t i = 0; line.size() == names.size() && i < line.size(); ++i) {
      widths[i] = std::max(widths[i], line[i].size());
    }
  }
  std::string text;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      StrAppend(&text, i == 0 ? "" : "  ", Padded(line[i], widths[i], /*to_the_right=*/i > 0));
    }
    text += '\n';
  }
  return text;
}

std::string RowsToJson(const std::vector<TaskRow>& rows) {
  nlohmann::json all = nlohmann::json::array();
  for (const TaskRow& row : rows) {
    nlohmann::json one = {{"task", row.task}};
    if (!row.error.empty()) {
      one["address"] = row.address;
      one["error"] = row.error;
    } else {
      one.update({{"steps_per_second", row.steps_per_second},
                  {"examples_per_second", row.examples_per_second},
                  {"step_seconds", row.step_seconds},
                  {"failed_per_second", row.failed_per_second},
                  {"calls_per_second", row.calls_per_second},
                  {"received_bytes_per_second", row.received_per_second},
                  {"wait_seconds", row.wait_seconds},
                  {"waiting", row.waits},
                  {"waiting_for", row.waits_for},
                  {"resident_bytes", row.resident_bytes},
                  {"tensor_bytes", row.tensor_bytes},
                  {"cpus", row.cpus}});
    }
    all.push_back(std::move(one));
  }
  return nlohmann::json{{"tasks", std::move(all)}}.dump(-1, ' ', false,
                                                        nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace millrace
