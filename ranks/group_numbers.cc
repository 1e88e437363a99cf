// SPDX-License-Identifier: Apache-2.0
#include "ranks/group_numbers.h"

#include <algorithm>
#include <map>

#include "base/errors.h"
#include "base/exceptions.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

// Keys of meetings are above those of all groups, and below 2^31 as all keys of collectives.
constexpr int64_t kFirstMeetingKey = int64_t{1} << 29;
constexpr int64_t kMeetingKeys = int64_t{1} << 29;
constexpr int64_t kKeysOfMeeting = 100;

struct Numbers {
  int next = 0;
  bool is_meeting = false;
};

Mutex mu;
CondVar changed;
std::map<std::string, Numbers>& OfTargets() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
  static auto* const of = new std::map<std::string, Numbers>;
  return *of;
}

Status CheckNumber(int number, const std::string& target) {
  if (number < kMostGroups) return OkStatus();
  return errors::ResourceExhausted("this process, or one that it is in a group with, has made ",
                                   kMostGroups, " groups of ranks at its server (here ", target,
                                   "), and may make no more");
}

}  // namespace

StatusOr<int> NextGroupNumber(const std::string& target) {
  MutexLock lock(&mu);
  int& next = OfTargets()[target].next;
  MR_RETURN_IF_ERROR(CheckNumber(next, target));
  return next++;
}

StatusOr<int> AgreedGroupNumber(const std::string& target, milliseconds limit,
                                const MeetOnNumber& meet) {
  const auto end = std::chrono::steady_clock::now() + limit;
  int free = 0;
  {
    MutexLock lock(&mu);
    while (OfTargets()[target].is_meeting) {
      if (!changed.WaitUntil(&mu, end)) {
        return errors::DeadlineExceeded("another group of ranks at ", target,
                                        " waited for its members for all of ", limit.count(),
                                        " ms, and groups of one server begin one after the other");
      }
    }
    Numbers& numbers = OfTargets()[target];
    numbers.is_meeting = true;
    free = numbers.next;
  }
  const auto left =
      std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
  const StatusOr<int> agreed = Guarded([&] { return meet(free, std::max(left, milliseconds(1))); });
  MutexLock lock(&mu);
  Numbers& numbers = OfTargets()[target];
  numbers.is_meeting = false;
  changed.SignalAll();
  if (!agreed.ok()) return agreed;
  MR_RETURN_IF_ERROR(CheckNumber(*agreed, target));
  numbers.next = std::max(numbers.next, *agreed + 1);
  return *agreed;
}

MemberNodes::Group MeetingKeys(std::span<const std::string> tasks) {
  const auto key =
      kFirstMeetingKey + static_cast<int64_t>(Hash64(StrJoin(tasks, " ")) %
                                              static_cast<uint64_t>(kMeetingKeys - kKeysOfMeeting));
  return {.key = key, .first_instance_key = key, .instance_keys = kKeysOfMeeting};
}

}  // namespace millrace
