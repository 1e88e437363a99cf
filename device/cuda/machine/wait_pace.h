// SPDX-License-Identifier: Apache-2.0
// How often a thread asks a device whether it has finished.
#ifndef DEVICE_CUDA_MACHINE_WAIT_PACE_H_
#define DEVICE_CUDA_MACHINE_WAIT_PACE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace millrace {

// A device can only be asked, and whoever waits in naps is late by half a nap: for a step of a
// millisecond that is a percent for every 20 us. So the device is asked without a pause when the
// last waits ended, and in naps before that and long after. No nap is longer than an eighth of what
// was waited already, or kLeastSleep: so late may be noticed what ends early. Times are in
// nanoseconds. One thread.
class WaitPace {
 public:
  // How long to sleep `waited` after the wait began; 0: give others a turn, and ask again.
  int64_t SleepAt(int64_t waited) const {
    const int64_t shortest = *std::min_element(waits_.begin(), waits_.end());
    const int64_t certain = shortest - std::max(shortest / 8, kWakeUp);
    if (certain - waited >= kLeastSleep) {
      return std::min(certain - waited, std::max(kLeastSleep, waited / 8));
    }
    const int64_t longest = *std::max_element(waits_.begin(), waits_.end());
    const int64_t asked = waited - std::max<int64_t>(certain, 0);
    if (asked < kAskAlways || (waited < 2 * longest && asked < kMostAsking)) return 0;
    return std::clamp(waited / 64, kFirstNap, kLongestNap);
  }
  // Something ended `waited` after the wait began.
  void Ended(int64_t waited) {
    waits_[next_] = waited;
    next_ = (next_ + 1) % waits_.size();
  }

  static constexpr int64_t kWakeUp = 100'000;  // what a sleep may be longer than asked for
  static constexpr int64_t kLeastSleep = 100'000;
  static constexpr int64_t kAskAlways = 50'000;
  static constexpr int64_t kMostAsking = 1'000'000;
  static constexpr int64_t kFirstNap = 20'000;
  static constexpr int64_t kLongestNap = 100'000;

 private:
  // Of the last waits: a step may have several, of different lengths.
  std::array<int64_t, 8> waits_{};
  std::size_t next_ = 0;
};

}  // namespace millrace

#endif  // DEVICE_CUDA_MACHINE_WAIT_PACE_H_
