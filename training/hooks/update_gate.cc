// SPDX-License-Identifier: Apache-2.0
#include "training/hooks/update_gate.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

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
  MutexLock lock(&mu_);
  needs_chief_ = std::move(needs_chief);
  local_step_ = applied_ = local_step;
  pushed_at_ = -1;
}

void UpdateGate::Push() {
  MutexLock lock(&mu_);
  pushed_at_ = std::max(pushed_at_, local_step_);
}

void UpdateGate::SetLocalStep(int64_t step) {
  MutexLock lock(&mu_);
  local_step_ = step;
}

void UpdateGate::BeginUpdate() {
  MutexLock lock(&mu_);
  while (holds_ > 0) changed_.Wait(&mu_);
  ++updating_;
}

void UpdateGate::EndUpdate(int64_t step) {
  MutexLock lock(&mu_);
  --updating_;
  applied_ = std::max(applied_, step);
  changed_.SignalAll();
}

bool UpdateGate::IsUsed() const {
  MutexLock lock(&mu_);
  return needs_chief_ != nullptr;
}

StatusOr<bool> UpdateGate::Hold(Session& session) {
  std::function<StatusOr<bool>(Session&)> needs_chief;
  {
    MutexLock lock(&mu_);
    ++holds_;
    needs_chief = needs_chief_;
  }
  // The thread that applies mostly waits for the next gradients: where all that the chief has
  // pushed is applied, and nothing comes without the chief, it will not get them.
  bool waits_for_chief = false;
  if (needs_chief) {
    MR_ASSIGN_OR_RETURN(waits_for_chief, needs_chief(session));
  }
  const auto begin = std::chrono::steady_clock::now();
  MutexLock lock(&mu_);
  while (updating_ > 0 && !(waits_for_chief && pushed_at_ < applied_)) {
    const bool is_short = !waits_for_chief || PreemptionSignal() != 0;
    const auto now = std::chrono::steady_clock::now();
    if (now >= begin + (is_short ? kShortly : kUpdate)) return false;
    changed_.WaitUntil(&mu_, now + kLook);
  }
  return true;
}

void UpdateGate::Release() {
  MutexLock lock(&mu_);
  --holds_;
  changed_.SignalAll();
}

}  // namespace millrace
