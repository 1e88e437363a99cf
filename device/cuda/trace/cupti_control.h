// SPDX-License-Identifier: Apache-2.0
// CUPTI on and off, its errors, and its clock.
#ifndef DEVICE_CUDA_TRACE_CUPTI_CONTROL_H_
#define DEVICE_CUDA_TRACE_CUPTI_CONTROL_H_

#include <cstdint>
#include <functional>

#include "device/cuda/trace/cupti_calls.h"
#include "millrace/status.h"

namespace millrace {

// OK, or the call with the library's name for the error and what to do: PermissionDenied where
// users may not profile, Unavailable where somebody else does, FailedPrecondition for all others.
Status CuptiStatus(const CuptiCalls& calls, int result, const char* call);

// Once, before CUPTI is switched on: whom it asks for buffers, and to whom it hands them back.
// FailedPrecondition for a library whose records may be others than those that are declared here.
Status RegisterAtCupti(const CuptiCalls& calls, CuptiRequest* requested, CuptiComplete* completed);

// Has CUPTI record kernels, copies, fills and what is pushed around them. If it refuses, nothing is
// on.
Status SwitchCuptiOn(const CuptiCalls& calls);
void SwitchCuptiOff(const CuptiCalls& calls);

// One moment, by two clocks, in nanoseconds.
struct CuptiMoment {
  int64_t cupti = 0;
  int64_t wall = 0;
};
CuptiMoment CuptiNow(const CuptiCalls& calls, const std::function<int64_t()>& wall_nanos);
// Wall time of a time of CUPTI's clock, which may drift evenly between the two moments.
int64_t WallTime(int64_t cupti, const CuptiMoment& first, const CuptiMoment& last);

}  // namespace millrace

#endif  // DEVICE_CUDA_TRACE_CUPTI_CONTROL_H_
