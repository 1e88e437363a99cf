// SPDX-License-Identifier: Apache-2.0
// The buffers that CUPTI fills, and what stands in them.
#ifndef DEVICE_CUDA_TRACE_CUPTI_BUFFERS_H_
#define DEVICE_CUDA_TRACE_CUPTI_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/activity.h"
#include "device/cuda/trace/cupti_calls.h"

namespace millrace {

// Whose lock guards it is its owner's.
class CuptiBuffers {
 public:
  // `most` buffers of `bytes`, which is a multiple of 8, at one time.
  CuptiBuffers(std::size_t bytes, int most) : bytes_(bytes), most_(most) {}

  // Null if there are too many already. It stays valid until Put.
  uint8_t* Take();
  void Put(uint8_t* buffer);
  // Gives the memory of idle ones back.
  void Trim() { idle_.clear(); }

  std::size_t bytes() const { return bytes_; }
  // The number of the latest that was taken; they count from 1.
  int64_t latest() const { return latest_; }
  // How many of those up to `number` are still out.
  int NumOut(int64_t number) const;

 private:
  using Buffer = std::unique_ptr<uint8_t[]>;  // new aligns it as records need it
  const std::size_t bytes_;
  const int most_;
  int64_t latest_ = 0;
  std::map<uint8_t*, std::pair<Buffer, int64_t>> out_;  // with their numbers
  std::vector<Buffer> idle_;
};

// Of one or several buffers. Correlation is CUPTI's number of a call that enqueued something.
struct CuptiRecords {
  struct Activity {
    DeviceActivity::Kind kind;
    uint32_t correlation;
    uint32_t stream;
    uint64_t start;  // ns of CUPTI's clock; 0: not known
    uint64_t end;
    uint64_t bytes;
    std::string function;  // of a kernel, mangled
  };
  std::vector<Activity> activities;
  std::vector<std::pair<uint32_t, uint64_t>> pushed;  // correlation, id that was pushed around it
};

// Adds what stands in a buffer, in any order. Internal if CUPTI cannot read it to its end.
Status ReadCuptiBuffer(const CuptiCalls& calls, uint8_t* buffer, std::size_t valid,
                       CuptiRecords* records);

}  // namespace millrace

#endif  // DEVICE_CUDA_TRACE_CUPTI_BUFFERS_H_
