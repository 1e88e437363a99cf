// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/peer_monitor.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/strings.h"

namespace millrace {
namespace {

using std::chrono::nanoseconds;

// So many looks in a timeout.
constexpr int kLooks = 5;
constexpr nanoseconds kShortestInterval = std::chrono::milliseconds(20);
// Tasks that calls and sessions have left are told of for so long: they may be why others wait.
constexpr std::chrono::minutes kMemory{30};

double Seconds(nanoseconds time) {
  return static_cast<double>(time / std::chrono::milliseconds(100)) / 10.0;
}

bool IsNoAnswer(const Status& status) {
  return errors::IsUnavailable(status) || errors::IsDeadlineExceeded(status) ||
         errors::IsCancelled(status) || errors::IsFailedPrecondition(status);
}

}  // namespace

PeerMonitor::PeerMonitor(Options options)
    : options_(std::move(options)),
      interval_(std::max(options_.timeout / kLooks, kShortestInterval)) {}

PeerMonitor::~PeerMonitor() { Stop(); }

void PeerMonitor::Start() {
  if (options_.timeout <= nanoseconds(0)) return;
  MutexLock lock(&mu_);
  stopped_ = false;
  last_tick_ = SteadyClock::now();
  ScheduleTick(interval_);
}

void PeerMonitor::Stop() {
  DeadlineTimer::Token timer = DeadlineTimer::kNone;
  {
    MutexLock lock(&mu_);
    timer = std::exchange(timer_, DeadlineTimer::kNone);
    stopped_ = true;
  }
  if (timer != DeadlineTimer::kNone && DeadlineTimer::Global().Cancel(timer)) working_.Leave();
  stopping_.StartCancel(errors::Cancelled("the server is stopping"));
  working_.WaitForNone();
}

// A tick is under way from the moment that it is planned.
void PeerMonitor::ScheduleTick(nanoseconds wait) {
  working_.Enter();
  timer_ = DeadlineTimer::Global().Schedule(SteadyClock::now() + wait, [this] {
    options_.pool->Schedule([this] {
      Tick();
      working_.Leave();
    });
  });
}

void PeerMonitor::Tick() {
  const std::vector<std::string> watched = options_.watched();
  std::vector<std::string> ask;
  std::vector<std::pair<std::string, Status>> lost;
  {
    MutexLock lock(&mu_);
    if (stopped_) return;
    const Deadline now = SteadyClock::now();
    // A process that was stopped for a minute has heard nothing in that minute.
    const nanoseconds elapsed = std::min<nanoseconds>(now - last_tick_, 2 * interval_);
    const Deadline before = std::exchange(last_tick_, now);
    for (const std::string& task : watched) peers_[task].watched_until = now + kMemory;
    nanoseconds next_look = interval_;
    for (auto it = peers_.begin(); it != peers_.end();) {
      const auto here = it++;
      const std::string& task = here->first;
      Peer& peer = here->second;
      if (now > peer.watched_until && !peer.asked) {
        peers_.erase(here);
        continue;
      }
      const bool mattered = peer.matters;
      peer.matters = std::find(watched.begin(), watched.end(), task) != watched.end();
      // One that nobody waits for is asked only as long as it is silent.
      if (!peer.matters && peer.silence == nanoseconds(0)) continue;
      if (!mattered && peer.silence == nanoseconds(0)) {
        peer.last_sign = std::max(peer.last_sign, before);
      }
      peer.silence += elapsed;
      if (!std::exchange(peer.asked, true)) ask.push_back(task);
      // A suspect counts as silent before the timeout, and is not lost before it.
      if (!peer.matters) continue;
      // Whoever begins to wait for one that is lost has his own time: it may come back.
      if (!mattered) peer.told = before;
      const nanoseconds so_far =
          peer.lost ? now - peer.told : std::min<nanoseconds>(peer.silence, now - peer.last_sign);
      const nanoseconds left = options_.timeout - so_far;
      if (left <= nanoseconds(0)) {
        peer.lost = true;
        peer.told = now;
        lost.emplace_back(task, errors::Unavailable(Describe(task, peer), ": it is lost"));
      } else {
        next_look = std::min(next_look, std::max(left, kShortestInterval));
      }
    }
    ScheduleTick(next_look);
  }
  for (const std::string& task : ask) {
    working_.Enter();
    AskTask(task);
  }
  for (const auto& [task, why] : lost) {
    if (!options_.known(task)) continue;
    MR_LOG(kWarning, Message(why));
    options_.lost(task, why);
  }
}

void PeerMonitor::AskTask(const std::string& task) {
  options_.ask(task, {.deadline = DeadlineAfter(options_.timeout), .cancellation = &stopping_},
               [this, task](const Status& status) {
                 Answered(task, status);
                 working_.Leave();
               });
}

void PeerMonitor::Suspect(const std::string& task) {
  MutexLock lock(&mu_);
  if (stopped_) return;
  const Deadline now = SteadyClock::now();
  Peer& peer = peers_[task];
  // What speaks against it came from it, or from its machine.
  if (peer.silence == nanoseconds(0)) peer.last_sign = now;
  peer.watched_until = now + kMemory;
  peer.silence = std::max(peer.silence, 2 * interval_ + nanoseconds(1));
  if (std::exchange(peer.asked, true)) return;
  working_.Enter();
  options_.pool->Schedule([this, task] { AskTask(task); });
}

void PeerMonitor::Answered(const std::string& task, const Status& status) {
  MutexLock lock(&mu_);
  const auto it = peers_.find(task);
  if (it == peers_.end()) return;
  Peer& peer = it->second;
  peer.asked = false;
  if (IsNoAnswer(status)) return;
  peer.last_sign = SteadyClock::now();
  peer.silence = nanoseconds(0);
  peer.lost = false;
}

std::string PeerMonitor::Describe(const std::string& task, const Peer& peer) const {
  return StrCat(task, " at ", options_.address(task), " has shown no sign of life for ",
                Seconds(SteadyClock::now() - peer.last_sign), " s");
}

void PeerMonitor::ListSilent(std::vector<Wait>* waits) const {
  MutexLock lock(&mu_);
  for (const auto& [task, peer] : peers_) {
    // An answer may be on its way.
    if (peer.silence <= 2 * interval_) continue;
    Wait& wait = waits->emplace_back();
    wait.kind = Wait::Kind::kTask;
    wait.peer = task;
    wait.text = Describe(task, peer);
    wait.since_nanos =
        std::chrono::duration_cast<nanoseconds>(peer.last_sign.time_since_epoch()).count();
  }
}

}  // namespace millrace
