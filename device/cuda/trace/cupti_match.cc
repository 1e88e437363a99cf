// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/trace/cupti_match.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace millrace {
namespace {

std::string Demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  if (text == nullptr) return name;
  std::string result(text);
  std::free(text);
  return result;
}

}  // namespace

std::vector<DeviceActivity> TakeActivities(CuptiRecords* records, const EnqueuedById& enqueued,
                                           const CuptiMoment& begin, const CuptiMoment& end,
                                           int64_t* untimed) {
  std::unordered_map<uint32_t, const Enqueued*> by_correlation;
  for (const auto& [correlation, id] : records->pushed) {
    const auto it = enqueued.find(id);
    if (it != enqueued.end()) by_correlation[correlation] = &it->second;
  }
  std::vector<DeviceActivity> taken;
  const auto take = [&](CuptiRecords::Activity& activity) {
    const auto it = by_correlation.find(activity.correlation);
    if (it == by_correlation.end()) return false;
    if (activity.start == 0 || activity.end < activity.start) {
      ++*untimed;
      return true;
    }
    const int64_t from = WallTime(static_cast<int64_t>(activity.start), begin, end);
    const int64_t to = WallTime(static_cast<int64_t>(activity.end), begin, end);
    taken.push_back({activity.kind, std::move(activity.function), it->second->node, activity.stream,
                     std::string(StreamPurpose(it->second->stream)), from, std::max(from, to),
                     static_cast<int64_t>(activity.bytes)});
    return true;
  };
  // Not erase_if, which must not change what it looks at.
  std::vector<CuptiRecords::Activity> left;
  for (CuptiRecords::Activity& activity : records->activities) {
    if (!take(activity)) left.push_back(std::move(activity));
  }
  records->activities = std::move(left);
  return taken;
}

void ForgetBefore(CuptiRecords* records, uint64_t id, int64_t time) {
  std::erase_if(records->pushed, [&](const auto& pushed) { return pushed.second <= id; });
  std::erase_if(records->activities, [&](const CuptiRecords::Activity& activity) {
    return activity.start != 0 && static_cast<int64_t>(activity.end) < time;
  });
}

void PrepareForPeople(std::vector<DeviceActivity>* activities) {
  for (DeviceActivity& activity : *activities) activity.name = Demangled(activity.name);
  std::stable_sort(activities->begin(), activities->end(),
                   [](const auto& a, const auto& b) { return a.begin < b.begin; });
}

}  // namespace millrace
