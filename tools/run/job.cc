// SPDX-License-Identifier: Apache-2.0
#include "tools/run/job.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "base/clock.h"
#include "base/errors.h"
#include "base/free_port.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "tools/run/child.h"

namespace millrace::run {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kMostBackoff = 30'000 * kMillisecond;

volatile sig_atomic_t last_signal = 0;
volatile sig_atomic_t signals = 0;
void OnSignal(int number) {
  last_signal = number;
  signals = signals + 1;
}

struct Task {
  std::string job;
  int index = 0;
  std::string address;
  bool service = false;
  int restarts_left = 0;
  int restarts = 0;
  int quick_ends = 0;      // in a row, of those that were followed by a restart
  int64_t started_at = 0;  // the last time
  int64_t start_at = 0;    // when it is started again; 0: it has been
  bool done = false;       // ended, for good
  std::string last_line;
  Child child;

  std::string name() const { return StrCat(job, "/", index); }
};

// Installs handlers for its lifetime.
class SignalScope {
 public:
  SignalScope() {
    last_signal = 0;
    signals = 0;
    struct sigaction action{};
    action.sa_handler = OnSignal;
    sigaction(SIGINT, &action, &interrupt_);
    sigaction(SIGTERM, &action, &terminate_);
    sigaction(SIGHUP, nullptr, &hang_up_);
    // Under nohup the job outlives its terminal.
    if (hang_up_.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  }
  ~SignalScope() {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGTERM, &terminate_, nullptr);
    sigaction(SIGHUP, &hang_up_, nullptr);
  }

 private:
  struct sigaction interrupt_{}, terminate_{}, hang_up_{};
};

class Job {
 public:
  explicit Job(const JobOptions& options)
      : options_(options), cluster_id_("run-" + Hex16(RandomId())) {}

  int Run() {
    const SignalScope handlers;
    const Status prepared = Prepare();
    if (!prepared.ok()) Fail(2, StrCat("cannot start the job: ", Message(prepared)));
    for (const std::unique_ptr<Task>& task : tasks_) {
      if (!failed_) StartTask(task.get());
    }
    while (AnyRunning() || AnyToStart()) {
      Wait();
      for (const std::unique_ptr<Task>& task : tasks_) Look(task.get());
      PassSignals();
      if (!stopping_ && AllWorkDone()) StopAll("every task has ended well");
      if (stop_deadline_ != 0 && SteadyNanos() >= stop_deadline_) SignalAll(SIGKILL);
    }
    for (const std::unique_ptr<Task>& task : tasks_) Read(task.get());
    if (signals > 0) return 128 + last_signal;
    if (failed_) Say(failure_);
    return exit_code_;
  }

 private:
  Status Prepare() {
    int num_tasks = 0;
    for (const auto& [job, count] : options_.jobs) num_tasks += count;
    MR_ASSIGN_OR_RETURN(const std::vector<int> ports, FreeLoopbackPorts(num_tasks));
    nlohmann::json cluster = nlohmann::json::object();
    for (const auto& [job, count] : options_.jobs) {
      std::vector<std::string> addresses;
      for (int index = 0; index < count; ++index) {
        auto task = std::make_unique<Task>();
        task->job = job;
        task->index = index;
        task->address = StrCat("127.0.0.1:", ports[tasks_.size()]);
        task->service = std::find(options_.services.begin(), options_.services.end(), job) !=
                        options_.services.end();
        const auto limit = options_.job_max_restarts.find(job);
        task->restarts_left =
            limit == options_.job_max_restarts.end() ? options_.max_restarts : limit->second;
        addresses.push_back(task->address);
        tasks_.push_back(std::move(task));
      }
      hosts_[job] = StrJoin(addresses, ",");
      // TensorFlow's programs start an evaluator as a cluster of its own.
      if (job != "evaluator") cluster[job] = addresses;
    }
    cluster_ = cluster.dump();
    return OkStatus();
  }

  // `text` with what its names in braces stand for.
  std::string Expand(const Task& task, std::string text) const {
    std::vector<std::pair<std::string, std::string>> names = {
        {"{job}", task.job}, {"{task}", StrCat(task.index)}, {"{address}", task.address}};
    for (const auto& [job, hosts] : hosts_) names.emplace_back("{" + job + "_hosts}", hosts);
    for (const auto& [name, value] : names) {
      for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size()) {
        text.replace(at, name.size(), value);
      }
    }
    return text;
  }

  void StartTask(Task* task) {
    task->start_at = 0;
    task->started_at = SteadyNanos();
    const nlohmann::json self = {{"type", task->job}, {"index", task->index}};
    std::map<std::string, std::string> environment = {
        {"TF_CONFIG", StrCat("{\"cluster\": ", cluster_, ", \"task\": ", self.dump(), "}")},
        {"MILLRACE_CLUSTER_ID", cluster_id_},
        {"MILLRACE_RESTARTS", StrCat(task->restarts)}};
    for (const auto& [name, value] : options_.environment) {
      environment[name] = Expand(*task, value);
    }
    std::vector<std::string> command = options_.command;
    for (std::string& argument : command) argument = Expand(*task, std::move(argument));
    const Status started = task->child.Start(command, environment);
    if (started.ok()) return;
    task->done = true;
    Fail(127, StrCat(task->name(), " cannot be started: ", Message(started)));
  }

  void Wait() const {
    std::vector<pollfd> fds;
    for (const std::unique_ptr<Task>& task : tasks_) {
      if (task->child.output() >= 0) fds.push_back({task->child.output(), POLLIN, 0});
    }
    poll(fds.data(), fds.size(), 50);
  }

  // Reads what a task has said, and decides what follows when it has ended.
  void Look(Task* task) {
    const bool was_running = task->child.running();
    const bool ended = was_running && task->child.Reap();
    Read(task);
    if (ended) OnEnd(task);
    if (task->start_at != 0 && SteadyNanos() >= task->start_at && !stopping_) StartTask(task);
  }

  void Read(Task* task) {
    task->child.ReadLines([&](std::string_view line) {
      // Lines behind the first of an error, which name nodes, are set in.
      const bool goes_on = line.empty() || line[0] == ' ' || line[0] == '\t';
      if (!goes_on || (task->last_line.empty() && !line.empty())) task->last_line = line;
      options_.print(task->name(), line);
    });
  }

  void OnEnd(Task* task) {
    // One that ended for the same signal, because the whole job got it, has not failed.
    PassSignals();
    const int end = task->child.wait_status();
    if (end == 0 || stopping_) {
      task->done = true;
      return;
    }
    if (task->restarts_left == 0) {
      task->done = true;
      const std::string again =
          task->restarts == 0
              ? std::string()
              : StrCat(" after ", task->restarts, task->restarts == 1 ? " restart" : " restarts");
      const std::string last =
          task->last_line.empty() ? std::string() : StrCat("; its last line: ", task->last_line);
      Fail(ExitCodeOf(end), StrCat(task->name(), " ended with ", DescribeEnd(end), again, last));
      return;
    }
    const int64_t lived = SteadyNanos() - task->started_at;
    if (lived >= std::chrono::nanoseconds(options_.steady).count()) task->quick_ends = 0;
    int64_t delay = std::chrono::nanoseconds(options_.backoff).count();
    for (int i = 0; i < task->quick_ends && delay < kMostBackoff; ++i) delay *= 2;
    ++task->quick_ends;
    delay = std::min(delay, kMostBackoff);
    --task->restarts_left;
    ++task->restarts;
    task->start_at = SteadyNanos() + std::max<int64_t>(delay, 1);
    Say(StrCat(task->name(), " ended with ", DescribeEnd(end), "; restart ", task->restarts, " in ",
               delay / kMillisecond, " ms"));
  }

  bool AnyRunning() const {
    return std::any_of(tasks_.begin(), tasks_.end(),
                       [](const std::unique_ptr<Task>& task) { return task->child.running(); });
  }
  bool AnyToStart() const {
    return !stopping_ &&
           std::any_of(tasks_.begin(), tasks_.end(),
                       [](const std::unique_ptr<Task>& task) { return task->start_at != 0; });
  }
  // A job of services alone is done when they are.
  bool AllWorkDone() const {
    bool any_work = false;
    for (const std::unique_ptr<Task>& task : tasks_) {
      any_work = any_work || !task->service;
      if (!task->service && !task->done) return false;
    }
    return any_work;
  }

  void PassSignals() {
    if (signals == passed_) return;
    const bool second = passed_ > 0;
    passed_ = signals;
    if (second) return SignalAll(SIGKILL);
    Say(StrCat("signal ", static_cast<int>(last_signal), " (", strsignal(last_signal),
               "): stopping every task"));
    // A terminal that is gone is no word of the tasks': they are told to end as they know it.
    Stop(last_signal == SIGHUP ? SIGTERM : static_cast<int>(last_signal));
  }

  void Fail(int exit_code, std::string why) {
    if (failed_ || stopping_) return;
    failed_ = true;
    exit_code_ = exit_code;
    failure_ = std::move(why);
    StopAll(failure_);
  }
  void StopAll(std::string_view why) {
    if (AnyRunning()) Say(StrCat(why, ": stopping the other tasks"));
    Stop(SIGTERM);
  }
  void Stop(int number) {
    stopping_ = true;
    stop_deadline_ = SteadyNanos() + std::chrono::nanoseconds(options_.grace).count();
    SignalAll(number);
  }
  void SignalAll(int number) {
    for (const std::unique_ptr<Task>& task : tasks_) task->child.Signal(number);
  }
  void Say(std::string_view text) const { options_.print("run", text); }

  const JobOptions& options_;
  const std::string cluster_id_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::map<std::string, std::string> hosts_;
  std::string cluster_;  // JSON
  bool stopping_ = false, failed_ = false;
  int64_t stop_deadline_ = 0;
  int passed_ = 0;
  int exit_code_ = 0;
  std::string failure_;
};

}  // namespace

int RunJob(const JobOptions& options) { return Job(options).Run(); }

}  // namespace millrace::run
