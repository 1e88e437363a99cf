// SPDX-License-Identifier: Apache-2.0
#include "transport/link/link_opener.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/deadline_timer.h"
#include "base/errors.h"
#include "transport/methods.h"
#include "transport/server_call.h"

namespace millrace {

LinkOpener::LinkOpener(std::string task, LinkHub* hub, Channel* channel)
    : task_(std::move(task)), hub_(hub), channel_(channel) {}

void LinkOpener::Ensure(const CallOptions& options, std::function<void()> then) {
  if (hub_ == nullptr || SteadyNanos() < ask_again_.load(std::memory_order_relaxed) ||
      hub_->Find(task_)) {
    return then();
  }
  CallOptions limit = options;
  limit.deadline = std::min(limit.deadline, DeadlineAfter(kLimit));
  channel_->Call(
      methods::kControlOfferLink, limit, WireWriter(),
      [this, limit, then = std::move(then)](const Status& status, WireReader response) mutable {
        pb::OfferLinkResponse offer;
        if (!status.ok() || !ParseMessage(response, &offer).ok() || offer.socket_name().empty()) {
          // A server of another make says so once and for all.
          if (errors::IsUnimplemented(status)) ask_again_.store(kNever);
          if (status.ok()) ask_again_.store(SteadyNanos() + kAskAgainNanos);
          return then();
        }
        Open(limit.deadline, offer, std::move(then));
      });
}

void LinkOpener::Open(Deadline deadline, const pb::OfferLinkResponse& offer,
                      std::function<void()> then) {
  // Whichever is first, the greeting or the deadline.
  struct Once {
    std::atomic<bool> used{false};
    std::function<void()> then;
  };
  if (!Enter()) return then();  // its call fails: the channel is closing
  auto once = std::make_shared<Once>();
  once->then = std::move(then);
  const auto go_on = [this, once] {
    if (once->used.exchange(true)) return;
    once->then();
    Leave();
  };
  const DeadlineTimer::Token timer = DeadlineTimer::Global().Schedule(deadline, go_on);
  hub_->Connect(task_, offer, [this, go_on, timer] {
    DeadlineTimer::Global().Cancel(timer);
    // A task on another host would be asked in vain at every registration.
    if (!Enter()) return go_on();
    if (!hub_->Find(task_)) ask_again_.store(SteadyNanos() + kAskAgainNanos);
    Leave();
    go_on();
  });
}

bool LinkOpener::Enter() {
  MutexLock lock(&mu_);
  if (closed_) return false;
  ++count_;
  return true;
}

void LinkOpener::Leave() {
  MutexLock lock(&mu_);
  if (--count_ == 0) none_.SignalAll();
}

void LinkOpener::CloseAndWait() {
  MutexLock lock(&mu_);
  closed_ = true;
  while (count_ > 0) none_.Wait(&mu_);
}

}  // namespace millrace
