// SPDX-License-Identifier: Apache-2.0
// Whose activities are whose among what CUPTI recorded.
#ifndef DEVICE_CUDA_TRACE_CUPTI_MATCH_H_
#define DEVICE_CUDA_TRACE_CUPTI_MATCH_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/activity.h"
#include "device/cuda/trace/cupti_buffers.h"
#include "device/cuda/trace/cupti_control.h"
#include "device/stream.h"

namespace millrace {

// An operation of a recorded step.
struct Enqueued {
  std::string node;
  StreamKind stream = StreamKind::kCompute;
};
using EnqueuedById = std::unordered_map<uint64_t, Enqueued>;

// Takes those of the operations out of `records`, in any order, with the names that CUPTI has for
// functions. `begin` and `end` are those of the recording. Adds to *untimed how many have no times;
// they are not among the result.
std::vector<DeviceActivity> TakeActivities(CuptiRecords* records, const EnqueuedById& enqueued,
                                           const CuptiMoment& begin, const CuptiMoment& end,
                                           int64_t* untimed);
// Drops what ended before `time` of CUPTI's clock, and ids up to `id`.
void ForgetBefore(CuptiRecords* records, uint64_t id, int64_t time);

// By their beginnings, with functions as they are written in programs.
void PrepareForPeople(std::vector<DeviceActivity>* activities);

}  // namespace millrace

#endif  // DEVICE_CUDA_TRACE_CUPTI_MATCH_H_
