// SPDX-License-Identifier: Apache-2.0
#include "executor/capture/captured_inputs.h"

namespace millrace {

void CapturedInputs::Start(CancellationManager* cancellation,
                           std::function<void(bool at_once)> ready) {
  ready_ = std::move(ready);
  for (std::size_t i = 0; i < heads_.size(); ++i) {
    base_->RecvAsync(heads_[i].key, cancellation,
                     [self = RefPtr<CapturedInputs>::Share(this), i](
                         const Status& status, const Tensor& value, bool is_dead) {
                       self->Arrive(i, status, value, is_dead);
                     });
  }
  bool tells = false;
  {
    MutexLock lock(&mu_);
    asked_for_all_ = true;
    tells = BecomesReady();
  }
  if (tells) ready_(/*at_once=*/true);
}

bool CapturedInputs::BecomesReady() {
  if (told_ || !asked_for_all_) return false;
  told_ = !all_good_ || num_arrived_ == heads_.size();
  return told_;
}

void CapturedInputs::Arrive(std::size_t head, const Status& status, const Tensor& value,
                            bool is_dead) {
  RecvDone waiting;
  bool tells = false;
  {
    MutexLock lock(&mu_);
    Arrival& arrival = arrivals_[head];
    arrival.arrived = true;
    arrival.is_dead = is_dead;
    arrival.status = status;
    arrival.value = value;
    waiting = std::move(arrival.waiting);
    ++num_arrived_;
    all_good_ = all_good_ && status.ok() && !is_dead;
    tells = BecomesReady();
  }
  if (waiting) waiting(status, value, is_dead);
  if (tells) ready_(/*at_once=*/false);
}

bool CapturedInputs::complete() const {
  MutexLock lock(&mu_);
  return all_good_ && num_arrived_ == heads_.size();
}

void CapturedInputs::RecvAsync(std::string_view key, CancellationManager* cancellation,
                               RecvDone done) {
  for (std::size_t i = 0; i < heads_.size(); ++i) {
    if (heads_[i].key != key) continue;
    Arrival arrival;
    {
      MutexLock lock(&mu_);
      if (!arrivals_[i].arrived) {
        arrivals_[i].waiting = std::move(done);
        return;
      }
      arrival = arrivals_[i];
      arrivals_[i].value = Tensor();  // nobody receives it twice
    }
    return done(arrival.status, arrival.value, arrival.is_dead);
  }
  base_->RecvAsync(key, cancellation, std::move(done));
}

}  // namespace millrace
