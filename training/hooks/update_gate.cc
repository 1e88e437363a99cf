// SPDX-License-Identifier: Apache-2.0
#include "training/hooks/update_gate.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "base/status_macros.h"
#include "millrace/preemption.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

// For an update that is under way: workers may be slow, or gone.
constexpr milliseconds kUpdate{10'000};
// Where it may be one that nobody computes gradients for yet, or the process is to end.
constexpr milliseconds kShortly{1'000};
constexpr milliseconds kLook{50};  // between looks whether it is to end

}  // namespace

struct UpdateGate::State {
  Mutex mu;
  CondVar changed;
  std::function<StatusOr<bool>(Session&)> needs_chief ABSL_GUARDED_BY(mu);
  int64_t local_step ABSL_GUARDED_BY(mu) = 0;  // of the chief
  // The step of the chief's last gradient, and the global step after the last update.
  int64_t pushed_at ABSL_GUARDED_BY(mu) = -1;
  int64_t applied ABSL_GUARDED_BY(mu) = 0;
  int updating ABSL_GUARDED_BY(mu) = 0;
  int holds ABSL_GUARDED_BY(mu) = 0;
};

UpdateGate::UpdateGate() : state_(std::make_unique<State>()) {}
UpdateGate::~UpdateGate() = default;

std::shared_ptr<UpdateGate> UpdateGate::Of(const Graph& graph) {
  static Mutex mu;
  static auto* const gates = new std::map<const Graph*, std::weak_ptr<UpdateGate>>();
  MutexLock lock(&mu);
  std::erase_if(*gates, [](const auto& gate) { return gate.second.expired(); });
  std::weak_ptr<UpdateGate>& known = (*gates)[&graph];
  std::shared_ptr<UpdateGate> gate = known.lock();
  if (gate == nullptr) {
    gate = std::make_shared<UpdateGate>();
    known = gate;
  }
  return gate;
}

void UpdateGate::StartSession(std::function<StatusOr<bool>(Session&)> needs_chief,
                              int64_t local_step) {
  State& s = *state_;
  MutexLock lock(&s.mu);
  s.needs_chief = std::move(needs_chief);
  s.local_step = s.applied = local_step;
  s.pushed_at = -1;
}

void UpdateGate::Push() {
  State& s = *state_;
  MutexLock lock(&s.mu);
  s.pushed_at = std::max(s.pushed_at, s.local_step);
}

void UpdateGate::SetLocalStep(int64_t step) {
  State& s = *state_;
  MutexLock lock(&s.mu);
  s.local_step = step;
}

void UpdateGate::BeginUpdate() {
  State& s = *state_;
  MutexLock lock(&s.mu);
  while (s.holds > 0) s.changed.Wait(&s.mu);
  ++s.updating;
}

void UpdateGate::EndUpdate(int64_t step) {
  State& s = *state_;
  MutexLock lock(&s.mu);
  --s.updating;
  s.applied = std::max(s.applied, step);
  s.changed.SignalAll();
}

bool UpdateGate::IsUsed() const {
  State& s = *state_;
  MutexLock lock(&s.mu);
  return s.needs_chief != nullptr;
}

StatusOr<bool> UpdateGate::Hold(Session& session) {
  State& s = *state_;
  std::function<StatusOr<bool>(Session&)> needs_chief;
  {
    MutexLock lock(&s.mu);
    ++s.holds;
    needs_chief = s.needs_chief;
  }
  // The thread that applies mostly waits for the next gradients: where all that the chief has
  // pushed is applied, and nothing comes without the chief, it will not get them.
  bool waits_for_chief = false;
  if (needs_chief) {
    MR_ASSIGN_OR_RETURN(waits_for_chief, needs_chief(session));
  }
  const auto begin = std::chrono::steady_clock::now();
  MutexLock lock(&s.mu);
  while (s.updating > 0 && !(waits_for_chief && s.pushed_at < s.applied)) {
    const bool is_short = !waits_for_chief || PreemptionSignal() != 0;
    const auto now = std::chrono::steady_clock::now();
    if (now >= begin + (is_short ? kShortly : kUpdate)) return false;
    s.changed.WaitUntil(&s.mu, now + kLook);
  }
  return true;
}

void UpdateGate::Release() {
  State& s = *state_;
  MutexLock lock(&s.mu);
  --s.holds;
  s.changed.SignalAll();
}

}  // namespace millrace
