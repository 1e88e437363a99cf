// SPDX-License-Identifier: Apache-2.0
#include "worker/worker_session.h"

#include <utility>
#include <vector>

#include "base/strings.h"

namespace millrace {
namespace {

std::string WatchedMaster(const std::string& task, const WorkerEnv& env, bool brought) {
  if (task.empty() || task == env.task) return "";
  return brought ? StrCat(task, "@", env.workers->Address(task)) : task;
}

}  // namespace

WorkerSession::WorkerSession(WorkerSessionOptions options,
                             std::shared_ptr<SessionResources> resources, const WorkerEnv& env,
                             std::shared_ptr<const WorkerEnv> own_env)
    : options_(std::move(options)),
      own_env_(std::move(own_env)),
      env_(env),
      watched_master_(WatchedMaster(options_.master_task, env_, own_env_ != nullptr)),
      resources_(std::move(resources)) {}

void WorkerSession::AddGraph(std::string handle, std::shared_ptr<WorkerGraph> graph) {
  graph->set_session_state(tensors_);
  graph->set_step_count(step_count_);
  if (graph->updates() != nullptr) {
    graph->updates()->SetSource(options_.master_task,
                                static_cast<uint64_t>(options_.master_incarnation), tensors_.get());
  }
  MutexLock lock(&mu_);
  if (!closed_) graphs_[std::move(handle)] = std::move(graph);
}

bool WorkerSession::RemoveGraph(std::string_view handle) {
  std::shared_ptr<WorkerGraph> removed;  // destroyed without the lock
  MutexLock lock(&mu_);
  const auto it = graphs_.find(handle);
  if (it == graphs_.end()) return false;
  removed = std::move(it->second);
  graphs_.erase(it);
  return true;
}

std::shared_ptr<WorkerGraph> WorkerSession::FindGraph(std::string_view handle) const {
  MutexLock lock(&mu_);
  const auto it = graphs_.find(handle);
  return it == graphs_.end() ? nullptr : it->second;
}

bool WorkerSession::AddStep(const std::shared_ptr<WorkerSession>& self, WorkerStep* step) {
  MutexLock lock(&mu_);
  if (closed_) return false;
  steps_.insert(step);
  step->session_ = self;
  step_count_->Enter();
  return true;
}

void WorkerSession::RemoveStep(WorkerStep* step) {
  MutexLock lock(&mu_);
  steps_.erase(step);
}

void WorkerSession::Forget(std::shared_ptr<WorkerSession> session) {
  const std::shared_ptr<UseCount> count = session->step_count_;
  session.reset();
  count->Leave();
}

void WorkerSession::Close(const Status& reason) {
  StringMap<std::shared_ptr<WorkerGraph>> graphs;
  std::vector<RefPtr<WorkerStep>> steps;
  {
    MutexLock lock(&mu_);
    closed_ = true;
    graphs.swap(graphs_);
    for (WorkerStep* step : steps_) steps.push_back(RefPtr<WorkerStep>::Share(step));
  }
  for (const RefPtr<WorkerStep>& step : steps) step->Cancel(reason);
  tensors_->ForgetPrivate();
}

void WorkerSession::ListWaits(std::optional<int64_t> step_id, pb::TaskWaits* waits) const {
  std::vector<RefPtr<WorkerStep>> steps;
  {
    MutexLock lock(&mu_);
    for (WorkerStep* step : steps_) {
      if (!step_id || step->step_id() == *step_id) steps.push_back(RefPtr<WorkerStep>::Share(step));
    }
  }
  for (const RefPtr<WorkerStep>& step : steps) step->ListWaits(waits);
}

bool WorkerSession::HasSteps() const { return step_count_->any(); }

void WorkerSession::WaitForSteps() { step_count_->WaitForNone(); }

}  // namespace millrace
