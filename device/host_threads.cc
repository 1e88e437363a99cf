// SPDX-License-Identifier: Apache-2.0
#include "device/host_threads.h"

#include <cstddef>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace millrace {
namespace {

constexpr std::size_t kMaxThreads = 64;

thread_local bool is_host_thread = false;

struct Task {
  std::function<void()> fn;
  std::shared_ptr<void> owner;
};

}  // namespace

struct HostThreads::State {
  explicit State(std::function<void()> on_end) : on_end(std::move(on_end)) {}

  const std::function<void()> on_end;
  Mutex mu;
  CondVar changed;
  std::deque<Task> posts ABSL_GUARDED_BY(mu);
  int num_pending ABSL_GUARDED_BY(mu) = 0;  // in `posts`, or running
  std::size_t num_idle ABSL_GUARDED_BY(mu) = 0;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  std::vector<std::thread> threads ABSL_GUARDED_BY(mu);
};

HostThreads::HostThreads(std::function<void()> on_end)
    : state_(std::make_shared<State>(std::move(on_end))) {}

HostThreads::~HostThreads() { Stop(); }

bool HostThreads::IsCurrent() { return is_host_thread; }

int HostThreads::num_pending() const {
  MutexLock lock(&state_->mu);
  return state_->num_pending;
}

void HostThreads::Post(std::function<void()> fn, std::shared_ptr<void> owner) {
  {
    MutexLock lock(&state_->mu);
    if (!state_->stopping) {
      ++state_->num_pending;
      state_->posts.push_back({std::move(fn), std::move(owner)});
      if (state_->num_idle < state_->posts.size() && state_->threads.size() < kMaxThreads) {
        state_->threads.emplace_back([state = state_] { Run(state); });
      }
      state_->changed.Signal();
      return;
    }
  }
  fn();
}

void HostThreads::Run(const std::shared_ptr<State>& state) {
  is_host_thread = true;
  state->mu.Lock();
  while (true) {
    while (state->posts.empty() && !state->stopping) {
      ++state->num_idle;
      state->changed.Wait(&state->mu);
      --state->num_idle;
    }
    if (state->posts.empty()) break;
    Task post = std::move(state->posts.front());
    state->posts.pop_front();
    state->mu.Unlock();
    post.fn();
    post.fn = nullptr;
    state->mu.Lock();
    --state->num_pending;
    state->mu.Unlock();
    state->on_end();
    post.owner.reset();
    state->mu.Lock();
  }
  state->mu.Unlock();
}

void HostThreads::Stop() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(&state_->mu);
    state_->stopping = true;
    state_->changed.SignalAll();
    threads.swap(state_->threads);
  }
  for (std::thread& thread : threads) {
    thread.get_id() == std::this_thread::get_id() ? thread.detach() : thread.join();
  }
}

}  // namespace millrace
