// SPDX-License-Identifier: Apache-2.0
#include "master/cluster_devices.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/deadline_timer.h"
#include "base/engine_thread.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "session/async_join.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kFirstPause(50), kLongestPause(1000);
constexpr seconds kReminder(10);
constexpr std::size_t kMostReason = 500;  // bytes of an error in a line

std::string At(const WorkerEnv& env, std::string_view task) {
  const std::string address = env.workers == nullptr ? "" : env.workers->Address(task);
  return address.empty() ? "" : StrCat(" at ", address);
}

// One task that is asked for its devices until it answers.
class Inquiry : public std::enable_shared_from_this<Inquiry> {
 public:
  Inquiry(ClusterDevices::Task* task, const WorkerEnv& env, const CallOptions& options,
          std::function<void(Status)> done)
      : task_(task), env_(env), options_(options), done_(std::move(done)) {}

  void Ask() {
    auto self = shared_from_this();
    task_->devices.clear();
    task_->worker->GetStatusAsync(options_, &task_->devices,
                                  [self](Status status) { self->Answered(std::move(status)); });
  }

 private:
  void Answered(Status status) {
    const Deadline now = SteadyClock::now();
    const bool cancelled = options_.cancellation != nullptr && options_.cancellation->IsCancelled();
    if (cancelled) {
      status = options_.cancellation->reason();
    } else if (errors::IsDeadlineExceeded(status) ||
               (errors::IsUnavailable(status) && now + pause_ >= options_.deadline)) {
      status = errors::DeadlineExceeded(
          "CreateSession still waiting for response from worker: ", task_->name,
          At(env_, task_->name), " (", Message(status), ")");
    } else if (errors::IsUnavailable(status)) {
      Retry(now, status);
      return;
    }
    std::exchange(done_, nullptr)(std::move(status));
  }

  // `why` is what it answered last.
  void Retry(Deadline now, const Status& why) {
    if (now >= reminder_) {
      const LogRequest named(request_);
      MR_LOG(kInfo, "CreateSession still waiting for response from worker: ", task_->name,
             At(env_, task_->name), " (", Message(why).substr(0, kMostReason), ")");
      reminder_ = now + kReminder;
    }
    auto self = shared_from_this();
    DeadlineTimer::Global().Schedule(
        now + pause_, [self] { self->env_.inter_op_pool->Schedule([self] { self->Ask(); }); });
    pause_ = std::min(pause_ * 2, kLongestPause);
  }

  ClusterDevices::Task* const task_;
  const WorkerEnv& env_;
  const CallOptions options_;
  const int64_t request_ = LogRequest::Current();  // of the client that asks for a session
  std::function<void(Status)> done_;
  milliseconds pause_ = kFirstPause;
  Deadline reminder_ = DeadlineAfter(kReminder);
};

// Keeps the devices that match, and fills in what is looked up by name.
Status Finish(const WorkerEnv& env, const std::vector<DeviceName>& filters,
              ClusterDevices* cluster) {
  cluster->client_task = env.task;
  for (ClusterDevices::Task& task : cluster->tasks) {
    std::vector<pb::DeviceAttributes> kept;
    for (pb::DeviceAttributes& device : task.devices) {
      MR_ASSIGN_OR_RETURN(const DeviceName name, DeviceName::Parse(device.name()));
      if (TaskName(name) != task.name) {
        return errors::FailedPrecondition("the address of ", task.name,
                                          " in the cluster specification of ", env.task,
                                          At(env, task.name), ", is that of ", TaskName(name),
                                          ": one of the two has a wrong address there");
      }
      if (task.name != env.task && !MatchesAnyFilter(filters, name)) continue;
      cluster->incarnations[device.name()] = device.incarnation();
      kept.push_back(std::move(device));
    }
    task.devices = std::move(kept);
    if (task.name != env.task) continue;
    if (task.devices.empty()) return errors::Internal(env.task, " says that it has no devices");
    cluster->client_device = task.devices.front().name();
  }
  return OkStatus();
}

}  // namespace

bool MatchesAnyFilter(const std::vector<DeviceName>& filters, const DeviceName& name) {
  return filters.empty() || std::any_of(filters.begin(), filters.end(), [&](const DeviceName& f) {
           return f.IsCompatibleWith(name);
         });
}

StatusOr<std::vector<DeviceName>> ParseDeviceFilters(const std::vector<std::string>& filters) {
  std::vector<DeviceName> parsed;
  for (const std::string& text : filters) {
    StatusOr<DeviceName> name = DeviceName::Parse(text);
    if (!name.ok()) {
      return errors::InvalidArgument("Invalid device filter '", text,
                                     "': ", Message(name.status()));
    }
    parsed.push_back(*std::move(name));
  }
  return parsed;
}

void FindClusterDevices(const WorkerEnv& env, const CallOptions& options,
                        std::vector<DeviceName> filters,
                        std::function<void(StatusOr<ClusterDevices>)> done) {
  auto cluster = std::make_shared<ClusterDevices>();
  for (std::string& name : env.workers->ListWorkers()) {
    if (name != env.task) {
      const StatusOr<DeviceName> parsed = DeviceName::Parse(name);
      if (!parsed.ok()) return done(parsed.status());
      if (!MatchesAnyFilter(filters, *parsed)) continue;
    }
    WorkerInterface* worker = env.workers->GetWorker(name);
    if (worker == nullptr) return done(errors::Internal("no way to reach the task ", name));
    cluster->tasks.push_back({std::move(name), worker, {}});
  }
  auto join = AsyncJoin::Make(
      static_cast<int>(cluster->tasks.size()),
      [&env, cluster, filters = std::move(filters), done = std::move(done)](Status status) {
        if (status.ok()) status = Finish(env, filters, cluster.get());
        if (!status.ok()) return done(std::move(status));
        done(std::move(*cluster));
      });
  for (ClusterDevices::Task& task : cluster->tasks) {
    std::make_shared<Inquiry>(&task, env, options, [join, cluster](Status status) {
      join->Done(std::move(status));
    })->Ask();
  }
}

PlacerInput ClusterDevices::ForPlacer(const WorkerEnv& env, bool soft_placement) const {
  PlacerInput input;
  for (const Task& task : tasks) {
    for (const pb::DeviceAttributes& device : task.devices) {
      input.devices.push_back({device.name(), device.device_type(), task.name == client_task});
    }
  }
  const KernelRegistry* kernels = env.kernels;
  input.kernel = [kernels](const OpInfo& op, const AttrMap& attrs,
                           std::string_view device_type) -> std::optional<int> {
    const KernelDef* def = kernels->Find(op.def.name(), device_type, attrs);
    if (def == nullptr) return std::nullopt;
    return def->priority;
  };
  input.describe_kernels = [kernels](std::string_view op) { return kernels->DescribeKernels(op); };
  input.allow_soft_placement = soft_placement;
  return input;
}

}  // namespace millrace
