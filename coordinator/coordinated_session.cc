// SPDX-License-Identifier: Apache-2.0
#include "coordinator/coordinated_session.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {

CoordinatedSession::CoordinatedSession(int worker, int64_t process, Session session,
                                       GraphGate* gate, PerWorkerProgress* progress)
    : worker_(worker),
      process_(process),
      session_(std::move(session)),
      gate_(gate),
      progress_(progress) {}

std::shared_ptr<const Callable> CoordinatedSession::Find(int function) const {
  MutexLock lock(&mu_);
  const auto it = prepared_.find(function);
  return it == prepared_.end() ? nullptr : it->second;
}

StatusOr<std::shared_ptr<const Callable>> CoordinatedSession::Prepare(
    const CoordinatedFunction& function,
    const std::vector<std::shared_ptr<const PerWorkerInit>>& inits) {
  MR_RETURN_IF_ERROR(Initialize(inits, function.per_worker_values));
  StatusOr<Callable> made = [&] {
    GraphGate::Sending sending(gate_);
    return session_.MakeCallable(function.parts.inputs, function.parts.outputs,
                                 function.parts.targets);
  }();
  MR_RETURN_IF_ERROR(made.status());
  auto callable = std::make_shared<const Callable>(*std::move(made));
  MutexLock lock(&mu_);
  return prepared_.emplace(function.id, std::move(callable)).first->second;
}

Status CoordinatedSession::Initialize(
    const std::vector<std::shared_ptr<const PerWorkerInit>>& inits, int count) {
  // Held while they run: whoever else needs them waits.
  MutexLock lock(&progress_->mu);
  if (progress_->process != process_) {
    if (progress_->process > process_) {
      return errors::Aborted("the worker has restarted since this session was made");
    }
    progress_->process = process_;
    progress_->initialized = 0;
  }
  for (; progress_->initialized < count; ++progress_->initialized) {
    const PerWorkerInit& init = *inits[progress_->initialized];
    const Feed index{init.worker_index, Tensor::Scalar<int32_t>(worker_)};
    const std::size_t feeds = init.worker_index.valid() ? 1 : 0;
    StatusOr<Callable> run = [&] {
      GraphGate::Sending sending(gate_);
      return session_.MakeCallable(std::span(&index.first, feeds), {}, init.initializers);
    }();
    Status status = run.status();
    if (status.ok()) status = run->Run(std::span(&index.second, feeds)).status();
    if (!status.ok()) {
      return Annotate(status, StrCat("; it was to make the per-worker values '", init.name,
                                     "' of /job:worker/task:", worker_));
    }
  }
  return OkStatus();
}

bool CoordinatedSession::Begin(const CoordinatedCallPtr& call) {
  MutexLock lock(&mu_);
  if (given_up_.load(std::memory_order_relaxed)) return false;
  running_.push_back({call, SteadyClock::now()});
  return true;
}

bool CoordinatedSession::End(const CoordinatedCallPtr& call) {
  MutexLock lock(&mu_);
  const auto it = std::find_if(running_.begin(), running_.end(),
                               [&](const Running& running) { return running.call == call; });
  if (it == running_.end()) return false;
  *it = std::move(running_.back());
  running_.pop_back();
  return true;
}

std::vector<CoordinatedCallPtr> CoordinatedSession::GiveUp() {
  MutexLock lock(&mu_);
  given_up_.store(true, std::memory_order_release);
  std::vector<CoordinatedCallPtr> calls;
  for (Running& running : running_) calls.push_back(std::move(running.call));
  running_.clear();
  return calls;
}

bool CoordinatedSession::busy() const {
  MutexLock lock(&mu_);
  return !running_.empty();
}

std::string CoordinatedSession::Describe() const {
  std::string text;
  MutexLock lock(&mu_);
  for (const Running& running : running_) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(SteadyClock::now() - running.since);
    StrAppend(&text, text.empty() ? "'" : ", '", running.call->function->name, "' for ",
              seconds.count(), " s");
  }
  return text;
}

}  // namespace millrace
