// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/trace/cupti_control.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

// Correlations are told of calls only, and so calls are recorded as well: those of the driver, and
// those of the run time, through which libraries launch.
constexpr int kKinds[] = {cupti::kExternalCorrelation,
                          cupti::kDriver,
                          cupti::kRuntime,
                          cupti::kConcurrentKernel,
                          cupti::kMemcpy,
                          cupti::kPeerMemcpy,
                          cupti::kMemset};

// Calls that enqueue nothing and are made all the time, so that they would fill the buffers.
constexpr uint32_t kIdleCalls[] = {cupti::kEventRecord, cupti::kEventQuery, cupti::kStreamWaitEvent,
                                   cupti::kCtxSetCurrent};

// CUPTI_API_VERSION: those of CUDA 13, whose records are those of cupti_calls.h.
constexpr uint32_t kOldestVersion = 130000;
constexpr uint32_t kNextVersion = 140000;

constexpr int kClockReadings = 5;

}  // namespace

Status CuptiStatus(const CuptiCalls& calls, int result, const char* call) {
  if (result == cupti::kSuccess) return OkStatus();
  const char* name = nullptr;
  if (calls.cuptiGetResultString(result, &name) != cupti::kSuccess) name = nullptr;
  const std::string text =
      StrCat(call, ": ", name == nullptr ? "CUPTI error" : name, " (", result, ")");
  if (result == cupti::kInsufficientPrivileges ||
      result == cupti::kVirtualizedInsufficientPrivileges) {
    return errors::PermissionDenied(
        text,
        ": let users profile (NVreg_RestrictProfilingToAdminUsers=0 for NVIDIA's kernel "
        "module), or run with CAP_SYS_ADMIN");
  }
  if (result == cupti::kMultipleSubscribers) {
    return errors::Unavailable(text, ": another profiler has this process; end it");
  }
  return errors::FailedPrecondition(text);
}

Status RegisterAtCupti(const CuptiCalls& calls, CuptiRequest* requested, CuptiComplete* completed) {
  uint32_t version = 0;
  MR_RETURN_IF_ERROR(CuptiStatus(calls, calls.cuptiGetVersion(&version), "cuptiGetVersion"));
  if (version < kOldestVersion || version >= kNextVersion) {
    return errors::FailedPrecondition("libcupti.so.13 has version ", version,
                                      " of its interface, which should be 13xxxx: install CUPTI of "
                                      "CUDA 13");
  }
  return CuptiStatus(calls, calls.cuptiActivityRegisterCallbacks(requested, completed),
                     "cuptiActivityRegisterCallbacks");
}

Status SwitchCuptiOn(const CuptiCalls& calls) {
  for (const int kind : kKinds) {
    const Status status = CuptiStatus(calls, calls.cuptiActivityEnable(kind),
                                      StrCat("cuptiActivityEnable(", kind, ")").c_str());
    if (status.ok()) continue;
    for (const int earlier : kKinds) {
      if (earlier == kind) break;
      calls.cuptiActivityDisable(earlier);
    }
    return status;
  }
  // Where it cannot leave them out, they take room and are skipped.
  for (const uint32_t function : kIdleCalls) calls.cuptiActivityEnableDriverApi(function, 0);
  return OkStatus();
}

void SwitchCuptiOff(const CuptiCalls& calls) {
  for (const int kind : kKinds) calls.cuptiActivityDisable(kind);
}

CuptiMoment CuptiNow(const CuptiCalls& calls, const std::function<int64_t()>& wall_nanos) {
  // The reading that took least time is nearest to one moment.
  CuptiMoment best;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kClockReadings; ++i) {
    uint64_t cupti = 0;
    const int64_t before = wall_nanos();
    const int result = calls.cuptiGetTimestamp(&cupti);
    const int64_t took = wall_nanos() - before;
    if (result != cupti::kSuccess || took < 0 || took >= least) continue;
    least = took;
    best = {static_cast<int64_t>(cupti), before + took / 2};
  }
  return best;
}

int64_t WallTime(int64_t cupti, const CuptiMoment& first, const CuptiMoment& last) {
  const int64_t offset = first.wall - first.cupti;
  const int64_t drift = (last.wall - last.cupti) - offset;
  const int64_t span = last.cupti - first.cupti;
  if (span <= 0) return cupti + offset;
  const double part = static_cast<double>(cupti - first.cupti) / static_cast<double>(span);
  return cupti + offset +
         static_cast<int64_t>(static_cast<double>(drift) * std::clamp(part, 0.0, 1.0));
}

}  // namespace millrace
