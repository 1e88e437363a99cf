// SPDX-License-Identifier: Apache-2.0
#include "millrace/step_trace.h"

#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "executor/stats/step_stats.h"
#include "executor/stats/step_trace.h"
#include "io/filesystem.h"

namespace millrace {
namespace {

StatusOr<pb::StepStats> Parse(std::string_view step_stats) {
  pb::StepStats stats;
  if (!stats.ParseFromArray(step_stats.data(), static_cast<int>(step_stats.size()))) {
    return errors::InvalidArgument("these ", step_stats.size(), " bytes are no step statistics");
  }
  return stats;
}

}  // namespace

StatusOr<std::string> StepTrace(std::string_view step_stats) {
  MR_ASSIGN_OR_RETURN(const pb::StepStats stats, Parse(step_stats));
  return ChromeTrace(stats);
}

Status WriteStepTrace(std::string_view step_stats, const std::string& file) {
  MR_ASSIGN_OR_RETURN(const std::string trace, StepTrace(step_stats));
  return PosixFileSystem()->WriteFileAtomically(file, trace);
}

StatusOr<int64_t> StepPeakBytes(std::string_view step_stats) {
  MR_ASSIGN_OR_RETURN(const pb::StepStats stats, Parse(step_stats));
  int64_t peak = 0;
  for (const pb::DeviceStepStats& device : stats.dev_stats()) {
    peak = std::max(peak, PeakBytes(device));
  }
  return peak;
}

}  // namespace millrace
