// SPDX-License-Identifier: Apache-2.0
// A CUPTI that records what tests say, and hands it out as the real one might: late, on another
// thread, in another order, or not at all.
#ifndef DEVICE_CUDA_SIMULATED_SIMULATED_CUPTI_H_
#define DEVICE_CUDA_SIMULATED_SIMULATED_CUPTI_H_

#include <cstdint>
#include <memory>
#include <string>

#include "device/cuda/trace/cupti_calls.h"

namespace millrace {

// There is one at a time. Thread-safe. Its clock stands unless it is set.
class SimulatedCupti {
 public:
  SimulatedCupti();
  // After what receives its buffers, which goes after Settle.
  ~SimulatedCupti();
  SimulatedCupti(const SimulatedCupti&) = delete;
  SimulatedCupti& operator=(const SimulatedCupti&) = delete;

  const CuptiCalls* calls() const;

  // As if this thread launched, copied or filled something that ran at these times of CUPTI's
  // clock.
  void Launch(const char* function, uint32_t stream, uint64_t start, uint64_t end);
  void Copy(uint8_t kind, uint64_t bytes, uint32_t stream, uint64_t start, uint64_t end);
  void CopyToPeer(uint64_t bytes, uint32_t stream, uint64_t start, uint64_t end);
  void Fill(uint64_t bytes, uint32_t stream, uint64_t start, uint64_t end);

  struct Habits {
    bool late = false;       // buffers are handed out by a thread, after the flush has returned
    bool backwards = false;  // what was recorded last comes first
    bool hangs = false;      // a flush returns when this is no longer so
    bool waits_for_force = false;  // something in the buffers has not ended yet
    bool keeps = false;            // buffers are never handed out
  };
  void SetHabits(const Habits& habits);
  // Without habits from now on; what is being handed out has been.
  void Settle();
  void SetTime(uint64_t nanoseconds);
  void FollowHostClock();
  void SetVersion(uint32_t version);
  // The next call of that name returns this.
  void FailNext(const std::string& call, int result);

  int num_kinds() const;  // that are on
  int64_t num_pushed() const;
  int64_t num_popped() const;
  int64_t num_flushes() const;
  int64_t num_forced() const;

  struct State;

 private:
  const std::unique_ptr<State> state_;
};

}  // namespace millrace

#endif  // DEVICE_CUDA_SIMULATED_SIMULATED_CUPTI_H_
