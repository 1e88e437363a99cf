// SPDX-License-Identifier: Apache-2.0
#include "base/errors.h"
#include "millrace/hooks.h"
#include "training/hooks/hook_support.h"

namespace millrace {

StatusOr<StepTimer> StepTimer::Create(const Every& every, HookIo io) {
  if (every.steps < 0 || every.time.count() < 0 || (every.steps > 0) == (every.time.count() > 0)) {
    return errors::InvalidArgument("exactly one of the number of steps (", every.steps,
                                   ") and the time (", every.time.count(),
                                   " ms) after which something happens must be given");
  }
  return StepTimer(every, std::move(io));
}

int64_t StepTimer::Now() const { return hooks::Now(io_); }

bool StepTimer::ShouldTrigger(int64_t step) const {
  if (!last_step_) return true;
  if (step == *last_step_) return false;
  if (every_.steps > 0) return step >= *last_step_ + every_.steps;
  return Now() >= last_time_ + std::chrono::nanoseconds(every_.time).count();
}

std::optional<StepTimer::Elapsed> StepTimer::Update(int64_t step) {
  const int64_t now = Now();
  std::optional<Elapsed> elapsed;
  if (last_step_) {
    elapsed = {.seconds = static_cast<double>(now - last_time_) * 1e-9,
               .steps = step - *last_step_};
  }
  last_step_ = step;
  last_time_ = now;
  return elapsed;
}

}  // namespace millrace
