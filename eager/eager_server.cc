// SPDX-License-Identifier: Apache-2.0
#include "eager/eager_server.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/deadline_timer.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/string_map.h"
#include "base/strings.h"
#include "base/thread_pool.h"
#include "base/use_count.h"
#include "device/device_name.h"

namespace millrace {

// Of tensor/allocator.cc.
void FreeUnusedHostMemory();

namespace {

using std::chrono::milliseconds;

// What TensorFlow's clients ask for, for those that ask for nothing.
constexpr int64_t kUsualLease = 600;                     // seconds
constexpr int64_t kLongestLease = int64_t{366} * 86400;  // added to a clock
constexpr std::size_t kMostContexts = 1024;
constexpr milliseconds kMemoryPause(2000);  // memory that is not used for so long is given back
constexpr std::size_t kMostNames = 64;      // under which clients know this task

milliseconds LeaseOf(int64_t seconds) {
  if (seconds <= 0) seconds = kUsualLease;
  return milliseconds(std::min(seconds, kLongestLease) * 1000);
}

void ListDevices(const WorkerEnv& worker,
                 google::protobuf::RepeatedPtrField<pb::DeviceAttributes>* devices) {
  for (const Device* device : worker.devices) {
    pb::DeviceAttributes& to = *devices->Add();
    to.set_name(device->name());
    to.set_device_type(device->type());
    to.set_memory_limit(device->attributes().memory_limit);
    to.set_incarnation(device->incarnation());
    to.set_physical_device_desc(device->attributes().physical_description);
  }
}

}  // namespace

struct EagerServer::Impl : std::enable_shared_from_this<EagerServer::Impl> {
  struct Entry {
    std::shared_ptr<EagerContext> context;
    milliseconds lease{0};
    std::string client{};                 // whose it is; "": a task's, or of whoever calls
    Deadline asked = SteadyClock::now();  // the last time
  };

  Impl(const EagerEnv& env, const EagerLimits& limits)
      : env(env), limits(limits), later(std::make_unique<ThreadPool>("mr-eager", 1)) {}

  const EagerEnv env;
  const EagerLimits limits;
  // How many contexts have not quite gone.
  const std::shared_ptr<UseCount> alive = std::make_shared<UseCount>();
  // Closes contexts, whose connections wait for answers. Gone first.
  std::unique_ptr<ThreadPool> later;

  mutable Mutex mu;
  bool closed ABSL_GUARDED_BY(mu) = false;
  bool watches_memory ABSL_GUARDED_BY(mu) = false;
  absl::flat_hash_map<uint64_t, Entry> contexts ABSL_GUARDED_BY(mu);
  // This task's devices, by the name that clients give the task. As long as the server: iterators
  // work ahead on them.
  StringMap<std::shared_ptr<SessionResources>> devices ABSL_GUARDED_BY(mu);

  StatusOr<std::shared_ptr<SessionResources>> DevicesOf(const std::string& task) {
    MutexLock lock(&mu);
    const auto known = devices.find(task);
    if (known != devices.end()) return known->second;
    if (devices.size() >= kMostNames) {
      return errors::ResourceExhausted("clients know ", env.task->task, " by ", devices.size(),
                                       " names already, the most that it takes: ", task,
                                       " would be another one");
    }
    auto made = std::make_shared<SessionResources>();
    made->own_devices = std::make_unique<DeviceSet>();
    MR_ASSIGN_OR_RETURN(const DeviceName base, DeviceName::Parse(task));
    for (Device* device : env.task->devices) {
      if (device->type() != "CPU") continue;
      if (task == env.task->task) {
        made->devices.push_back(device);
        continue;
      }
      DeviceName name = device->parsed_name();
      name.EnsureSpecification(base);
      made->own_devices->devices.push_back(NewCpuDevice(name.ToString(), device->incarnation(),
                                                        device->intra_op_pool(),
                                                        device->resource_manager()));
      made->devices.push_back(made->own_devices->devices.back().get());
    }
    devices[task] = made;
    return made;
  }

  StatusOr<std::shared_ptr<EagerContext>> Find(uint64_t id) {
    MutexLock lock(&mu);
    const auto it = contexts.find(id);
    if (it == contexts.end()) {
      Status status = errors::Aborted(
          "Unable to find a context_id matching the specified one (", id, ") at ", env.task->task,
          ": the task was started again, or nothing was heard of the client for as long as it "
          "said that it would ask");
      status.SetPayload(kWorkerRestartedPayload, "");
      return status;
    }
    it->second.asked = SteadyClock::now();
    return it->second.context;
  }

  // Callers may be on threads that what runs in it needs.
  void CloseLater(std::shared_ptr<EagerContext> context, const Status& why) {
    later->Schedule([context = std::move(context), why] { context->Close(why); });
  }

  void Watch(uint64_t id, Deadline deadline) {
    DeadlineTimer::Global().Schedule(deadline, [weak = weak_from_this(), id] {
      if (const auto self = weak.lock()) self->CheckLease(id);
    });
  }

  // Until no context is left: what nobody has used for a while goes back to the system. Clients
  // leave without a word, after which others may come in days.
  void WatchMemory() {
    {
      MutexLock lock(&mu);
      if (std::exchange(watches_memory, true)) return;
    }
    LookAtMemory(/*is_last=*/false);
  }

  void LookAtMemory(bool is_last) {
    DeadlineTimer::Global().Schedule(DeadlineAfter(kMemoryPause),
                                     [weak = weak_from_this(), is_last] {
                                       const auto self = weak.lock();
                                       if (self == nullptr) return;
                                       bool is_over;
                                       {
                                         MutexLock lock(&self->mu);
                                         if (self->closed) return;
                                         // The last look frees what the one before it has seen.
                                         is_over = self->contexts.empty();
                                         if (is_over && is_last) self->watches_memory = false;
                                         self->later->Schedule([] { FreeUnusedHostMemory(); });
                                       }
                                       if (!is_over || !is_last) self->LookAtMemory(is_over);
                                     });
  }

  void CheckLease(uint64_t id) {
    std::shared_ptr<EagerContext> ended;
    Deadline next;
    {
      MutexLock lock(&mu);
      const auto it = contexts.find(id);
      if (closed || it == contexts.end()) return;
      next = it->second.asked + it->second.lease;
      if (it->second.context->is_busy()) next = std::max(next, DeadlineAfter(it->second.lease));
      if (SteadyClock::now() >= next) {
        ended = std::move(it->second.context);
        contexts.erase(it);
        CloseLater(ended, errors::Aborted("nothing was heard of the client"));
      }
    }
    if (ended == nullptr) return Watch(id, next);
    MR_LOG(kInfo, env.task->task, " drops the context ", Hex16(id),
           ": nothing was heard of its client");
  }

  // Closes what is to give way to the context. InvalidArgument, ResourceExhausted if it may not be.
  // A client has power over its own contexts alone.
  Status MakeRoom(const pb::CreateContextRequest& request, std::string_view client) {
    std::vector<std::shared_ptr<EagerContext>> ended;
    Status status;
    {
      MutexLock lock(&mu);
      if (request.clear_existing_contexts()) {
        absl::erase_if(contexts, [&](auto& known) {
          if (!client.empty() && known.second.client != client) return false;
          ended.push_back(std::move(known.second.context));
          return true;
        });
      }
      const auto it = contexts.find(request.context_id());
      if (it != contexts.end()) {
        if (!client.empty() && it->second.client != client) {
          status = ForeignContext(request.context_id());
        } else if (request.context_view_id() <= it->second.context->view_id()) {
          status = errors::InvalidArgument("EagerService:CreateContext failed. Context id: <",
                                           request.context_id(), "> already exists.");
        } else {
          ended.push_back(std::move(it->second.context));
          contexts.erase(it);
        }
      }
      if (status.ok()) status = HasRoom();
    }
    for (auto& context : ended) CloseLater(std::move(context), errors::Aborted("it was replaced"));
    return status;
  }

  Status HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (limits.contexts > 0 && static_cast<int64_t>(contexts.size()) >= limits.contexts) {
      return errors::ResourceExhausted(
          "no more than ", limits.contexts, " eager contexts may be open at ", env.task->task,
          " (--max_sessions), and so many are: close those that are not used");
    }
    if (contexts.size() < kMostContexts) return OkStatus();
    return errors::ResourceExhausted(env.task->task, " has ", contexts.size(),
                                     " eager contexts, the most that it keeps");
  }

  Status ForeignContext(uint64_t id) const {
    return errors::PermissionDenied("the context ", id, " at ", env.task->task,
                                    " is not one that this client has made: its certificate has "
                                    "another key");
  }

  Status ForeignStep(int64_t step_id) const {
    return errors::PermissionDenied("step ", step_id, " at ", env.task->task,
                                    " is not one of a context that this client has made: a "
                                    "client's certificate opens those alone");
  }

  Status Create(const pb::CreateContextRequest& request, pb::CreateContextResponse* response,
                std::string_view client, const CallerHost& caller) {
    const pb::ServerDef& server = request.server_def();
    if (server.job_name().empty() || server.task_index() < 0) {
      return errors::InvalidArgument("CreateContext does not say what job and task this one is");
    }
    MR_RETURN_IF_ERROR(MakeRoom(request, client));
    const std::string task = MakeTaskName(server.job_name(), server.task_index());
    MR_ASSIGN_OR_RETURN(const std::shared_ptr<SessionResources> resources, DevicesOf(task));
    alive->Enter();
    // With the last copy of `run_later`, in the context or its connections, the context has gone.
    const std::shared_ptr<UseCount> use(alive.get(),
                                        [count = alive](UseCount*) { count->Leave(); });
    const auto run_later = [this, use](std::function<void()> work) {
      later->Schedule(std::move(work));
    };
    auto context = std::make_shared<EagerContext>(env, request.context_id(), task, resources,
                                                  limits, run_later);
    context->SetCluster(request.context_view_id(), server.cluster(),
                        request.cluster_device_attributes(), caller);
    ListDevices(context->worker(), response->mutable_device_attributes());
    const milliseconds lease = LeaseOf(request.keep_alive_secs());
    {
      MutexLock lock(&mu);
      if (closed) return errors::Unavailable(env.task->task, " is stopping");
      MR_RETURN_IF_ERROR(HasRoom());  // others may have come since there was some
      const bool is_new = contexts
                              .try_emplace(request.context_id(),
                                           Entry{std::move(context), lease, std::string(client)})
                              .second;
      if (!is_new) {
        return errors::InvalidArgument("EagerService:CreateContext failed. Context id: <",
                                       request.context_id(), "> already exists.");
      }
    }
    Watch(request.context_id(), DeadlineAfter(lease));
    WatchMemory();
    return OkStatus();
  }

  void CloseAll() {
    absl::flat_hash_map<uint64_t, Entry> ended;
    {
      MutexLock lock(&mu);
      closed = true;
      ended.swap(contexts);
    }
    for (auto& [id, entry] : ended) {
      entry.context->Close(errors::Unavailable("the server ", env.task->task, " is stopping"));
    }
    ended.clear();
    alive->WaitForNone();
    later.reset();
  }
};

EagerServer::EagerServer(const EagerEnv& env, const EagerLimits& limits)
    : impl_(std::make_shared<Impl>(env, limits)) {}

EagerServer::~EagerServer() { impl_->CloseAll(); }

Status EagerServer::CreateContext(const pb::CreateContextRequest& request,
                                  pb::CreateContextResponse* response, std::string_view client,
                                  const CallerHost& caller) {
  return impl_->Create(request, response, client, caller);
}

Status EagerServer::CheckContext(uint64_t context_id, std::string_view client) const {
  if (client.empty()) return OkStatus();
  MutexLock lock(&impl_->mu);
  const auto it = impl_->contexts.find(context_id);
  if (it == impl_->contexts.end() || it->second.client == client) return OkStatus();
  return impl_->ForeignContext(context_id);
}

Status EagerServer::CheckStep(int64_t step_id, std::string_view client) const {
  if (client.empty()) return OkStatus();
  MutexLock lock(&impl_->mu);
  for (const auto& [id, entry] : impl_->contexts) {
    const bool has = static_cast<int64_t>(id) == step_id || entry.context->HasStep(step_id);
    if (has && entry.client != client) return impl_->ForeignStep(step_id);
  }
  return OkStatus();
}

Status EagerServer::CheckReceive(int64_t step_id, std::string_view client) const {
  if (client.empty()) return OkStatus();
  MR_RETURN_IF_ERROR(CheckStep(step_id, client));
  MutexLock lock(&impl_->mu);
  for (const auto& [id, entry] : impl_->contexts) {
    if (entry.client != client) continue;
    // Sessions have steps above zero, calls of functions below. A client that runs a part of one
    // itself may ask for what the part here sends before it has begun.
    if (step_id < 0 || static_cast<int64_t>(id) == step_id) return OkStatus();
  }
  return impl_->ForeignStep(step_id);
}

Status EagerServer::UpdateContext(const pb::UpdateContextRequest& request,
                                  pb::UpdateContextResponse* response, const CallerHost& caller) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<EagerContext> context,
                      impl_->Find(request.context_id()));
  const uint64_t view = context->view_id();
  if (request.context_view_id() != view + 1) {
    return errors::InvalidArgument(
        "EagerService:UpdateContext failed. Context id: <", request.context_id(), "> is at view #",
        view, ", the update is view #", request.context_view_id(), ": views follow each other");
  }
  if (request.server_def().cluster().job_size() == 0) {
    context->SetView(request.context_view_id());
  } else {
    context->SetCluster(request.context_view_id(), request.server_def().cluster(),
                        request.cluster_device_attributes(), caller);
  }
  ListDevices(context->worker(), response->mutable_device_attributes());
  return OkStatus();
}

void EagerServer::Enqueue(const pb::EnqueueRequest& request, const CallOptions& options,
                          pb::EnqueueResponse* response, EagerDone done) {
  const StatusOr<std::shared_ptr<EagerContext>> context = impl_->Find(request.context_id());
  if (!context.ok()) return done(context.status());
  RunQueue(*context, request, options, response, std::move(done));
}

void EagerServer::RunComponentFunction(const pb::RunComponentFunctionRequest& request,
                                       const CallOptions& options,
                                       pb::RunComponentFunctionResponse* response, EagerDone done) {
  const StatusOr<std::shared_ptr<EagerContext>> context = impl_->Find(request.context_id());
  if (!context.ok()) return done(context.status());
  RunComponent(*context, request, options, response, std::move(done));
}

void EagerServer::WaitQueueDone(const pb::WaitQueueDoneRequest& request, EagerDone done) {
  const StatusOr<std::shared_ptr<EagerContext>> context = impl_->Find(request.context_id());
  if (!context.ok()) return done(context.status());
  if (request.op_id_size() > 0) {
    return done(errors::Unimplemented("WaitQueueDone for single ops: wait for all of them"));
  }
  (*context)->WhenIdle([done = std::move(done)] { done(OkStatus()); });
}

Status EagerServer::KeepAlive(const pb::KeepAliveRequest& request,
                              pb::KeepAliveResponse* response) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<EagerContext> context,
                      impl_->Find(request.context_id()));
  response->set_context_view_id(context->view_id());
  return OkStatus();
}

Status EagerServer::CloseContext(const pb::CloseContextRequest& request) {
  std::shared_ptr<EagerContext> context;
  {
    MutexLock lock(&impl_->mu);
    const auto it = impl_->contexts.find(request.context_id());
    if (it == impl_->contexts.end()) return OkStatus();
    if (request.context_view_id() < it->second.context->view_id()) return OkStatus();
    context = std::move(it->second.context);
    impl_->contexts.erase(it);
  }
  impl_->CloseLater(std::move(context), errors::Cancelled("the client closed the context"));
  return OkStatus();
}

std::size_t EagerServer::num_contexts() const {
  MutexLock lock(&impl_->mu);
  return impl_->contexts.size();
}

}  // namespace millrace
