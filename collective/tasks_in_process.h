// SPDX-License-Identifier: Apache-2.0
// Tasks of this process that call each other directly, for tests of collectives.
#ifndef COLLECTIVE_TASKS_IN_PROCESS_H_
#define COLLECTIVE_TASKS_IN_PROCESS_H_

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/notification.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "collective/collective_manager.h"

namespace millrace::testing {

// Runs functions at their time, on a thread of its own.
class Clock {
 public:
  Clock() : thread_([this] { Run(); }) {}
  ~Clock() {
    {
      MutexLock lock(&mu_);
      stop_ = true;
      wake_.SignalAll();
    }
    thread_.join();
  }
  std::function<void()> At(Deadline deadline, std::function<void()> what) {
    MutexLock lock(&mu_);
    const auto it = entries_.emplace(deadline, std::make_shared<std::function<void()>>(what));
    wake_.SignalAll();
    return [this, deadline, entry = it->second] {
      MutexLock lock(&mu_);
      for (auto [i, end] = entries_.equal_range(deadline); i != end; ++i) {
        if (i->second != entry) continue;
        entries_.erase(i);
        return;
      }
    };
  }

 private:
  void Run() {
    mu_.Lock();
    while (!stop_) {
      if (entries_.empty()) {
        wake_.Wait(&mu_);
      } else if (entries_.begin()->first > SteadyClock::now()) {
        (void)wake_.WaitUntil(&mu_, entries_.begin()->first);
      } else {
        const auto what = entries_.begin()->second;
        entries_.erase(entries_.begin());
        mu_.Unlock();
        (*what)();
        mu_.Lock();
      }
    }
    mu_.Unlock();
  }

  Mutex mu_;
  CondVar wake_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::multimap<Deadline, std::shared_ptr<std::function<void()>>> entries_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

// Tasks /job:worker/task:0.. with so many CPU devices each; task 0 leads.
class Cluster {
 public:
  explicit Cluster(const std::vector<int>& devices_per_task, ThreadPool* pool = nullptr) {
    for (std::size_t task = 0; task < devices_per_task.size(); ++task) {
      tasks_.push_back(StrCat("/job:worker/replica:0/task:", task));
      Start(static_cast<int>(task), devices_per_task[task], pool);
    }
  }

  // Also again: as a process that restarts.
  void Start(int task, int num_devices, ThreadPool* pool = nullptr) {
    CollectiveOptions options;
    options.task = tasks_[task];
    options.pool = pool;
    options.patience = std::chrono::milliseconds(20);
    for (int i = 0; i < num_devices; ++i) {
      const std::string name = StrCat(tasks_[task], "/device:CPU:", i);
      devices_[name] = NewCpuDevice(name, next_incarnation_++, nullptr, nullptr);
      options.devices.push_back(devices_[name]->attributes());
    }
    options.peer = [this](std::string_view name) -> CollectivePeer* {
      MutexLock lock(&mu_);
      const auto it = managers_.find(name);
      return it == managers_.end() ? nullptr : it->second->local();
    };
    options.at = [this](Deadline deadline, std::function<void()> what) {
      return clock_.At(deadline, std::move(what));
    };
    auto manager = NewCollectiveManager(std::move(options));
    MutexLock lock(&mu_);
    if (auto& old = managers_[tasks_[task]]; old != nullptr) gone_.push_back(old);
    managers_[tasks_[task]] = std::move(manager);
  }

  CollectiveManager& manager(int task) {
    MutexLock lock(&mu_);
    return *managers_.at(tasks_[task]);
  }
  // All devices in the order of their ranks, with their tasks.
  std::vector<std::pair<int, Device*>> Members() {
    std::vector<std::pair<int, Device*>> members;
    for (const auto& [name, device] : devices_) {
      members.emplace_back(*device->parsed_name().task, device.get());
    }
    return members;
  }
  const std::string& leader() const { return tasks_[0]; }

 private:
  std::vector<std::string> tasks_;
  uint64_t next_incarnation_ = 1;
  std::map<std::string, std::unique_ptr<Device>> devices_;
  Mutex mu_;
  std::map<std::string, std::shared_ptr<CollectiveManager>, std::less<>> managers_
      ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<CollectiveManager>> gone_;
  Clock clock_;
};

struct Outcome {
  Notification ended;
  Status status;
  Tensor output;
};

inline CollectiveParams Reduce(int group_size, const Tensor& input) {
  CollectiveParams params;
  params.node = "sum";
  params.dtype = input.dtype();
  params.shape = input.shape();
  params.group_key = 1;
  params.group_size = group_size;
  params.instance_key = 7;
  params.subdiv_offsets = {0};
  return params;
}

// Resolves and runs; `outcome` must live until it has ended.
inline void Start(const RefPtr<CollectiveExecutor>& step, const Device& device,
                  const CollectiveParams& params, const Tensor& input, Outcome* outcome) {
  step->ResolveAsync(
      params, device,
      [step, input, outcome](StatusOr<std::shared_ptr<const ResolvedCollective>> resolved) {
        if (!resolved.ok()) {
          outcome->status = resolved.status();
          return outcome->ended.Notify();
        }
        const CollectiveParams& params = (*resolved)->params;
        // Bounded: of a test.
        outcome->output = Tensor(params.dtype, params.shape);
        step->RunAsync(*resolved, StrCat(params.group_key, ":", params.instance_key, ":0:0"), input,
                       outcome->output, [outcome](const Status& status) {
                         outcome->status = status;
                         outcome->ended.Notify();
                       });
      });
}

// One step at all members of the cluster, each with its own parameters and input.
class Step {
 public:
  Step(Cluster& cluster, int64_t id) : cluster_(cluster), id_(id), members_(cluster.Members()) {
    for (const auto& [task, device] : members_) {
      if (!steps_.contains(task)) {
        steps_[task] = cluster.manager(task).NewStep(id, cluster.leader());
      }
    }
    outcomes_ = std::vector<Outcome>(members_.size());
  }
  ~Step() {
    steps_.clear();
    for (const auto& [task, device] : members_) cluster_.manager(task).Cleanup(id_);
  }

  int size() const { return static_cast<int>(members_.size()); }
  void Begin(int member, const CollectiveParams& params, const Tensor& input) {
    Start(steps_[members_[member].first], *members_[member].second, params, input,
          &outcomes_[member]);
  }
  CollectiveExecutor& executor(int member) { return *steps_[members_[member].first]; }
  bool Ended(int member) const { return outcomes_[member].ended.HasBeenNotified(); }
  const Outcome& End(int member) {
    EXPECT_TRUE(outcomes_[member].ended.WaitUntil(DeadlineAfter(std::chrono::seconds(30))))
        << "member " << member << " waits";
    return outcomes_[member];
  }

 private:
  Cluster& cluster_;
  const int64_t id_;
  const std::vector<std::pair<int, Device*>> members_;
  std::map<int, RefPtr<CollectiveExecutor>> steps_;
  std::vector<Outcome> outcomes_;
};

inline const std::vector<std::vector<int>>& Layouts() {
  static const auto* const layouts =
      new std::vector<std::vector<int>>{{1}, {2}, {5}, {1, 1}, {1, 1, 1}, {2, 3}, {3, 1, 2}};
  return *layouts;
}

inline Tensor Floats(int64_t count, int seed) {
  std::mt19937 random(seed);
  // Bounded: of a test.
  Tensor t(kFloat, Shape({count}));
  for (float& v : t.flat<float>()) v = std::uniform_real_distribution<float>(-2, 2)(random);
  return t;
}

}  // namespace millrace::testing

#endif  // COLLECTIVE_TASKS_IN_PROCESS_H_
