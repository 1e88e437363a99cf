// SPDX-License-Identifier: Apache-2.0
// Names of devices: "/job:J/replica:R/task:T/device:TYPE:ID", whole or in part.
#ifndef DEVICE_DEVICE_NAME_H_
#define DEVICE_DEVICE_NAME_H_

#include <optional>
#include <string>
#include <string_view>

#include "millrace/status.h"

namespace millrace {

// A device, a set of devices (fields that are not set mean "any"), or a request. A value.
struct DeviceName {
  std::optional<std::string> job;
  std::optional<int> replica;
  std::optional<int> task;
  std::optional<std::string> type;  // "CPU"; legacy "/cpu:0" is read as "CPU"
  std::optional<int> id;

  // Parts in any order, repeated ones override; "/" and "" mean no constraint; "*" clears a
  // field; also the local forms "CPU:0" and "/device:CPU:0". InvalidArgument "Malformed
  // device specification 'X'" otherwise.
  static StatusOr<DeviceName> Parse(std::string_view text);
  // Canonical text of what is set; "*" stands for the id of a type without one.
  std::string ToString() const;

  bool empty() const { return !job && !replica && !task && !type && !id; }
  bool IsFull() const { return job && replica && task && type && id; }

  // Every field set in `more` is copied over this.
  void EnsureSpecification(const DeviceName& more);
  // Fills the fields that are not set from `base`.
  void FillFrom(const DeviceName& base);
  // True if every field set here is set and equal in `specific`.
  bool Matches(const DeviceName& specific) const;
  // True if no field set in both differs.
  bool IsCompatibleWith(const DeviceName& other) const;
  // True if job, replica and task are set and equal in both.
  bool SameAddressSpace(const DeviceName& other) const;
  // Union of both. InvalidArgument ("incompatible jobs/replicas/tasks/types/ids") on a
  // conflict; with `soft`, a conflict of types clears type and id, one of ids clears the id.
  Status MergeFrom(const DeviceName& other, bool soft);
  // Like a soft merge, but on a conflict of type or id the other's wins.
  Status MergeOverride(const DeviceName& other);

  friend bool operator==(const DeviceName&, const DeviceName&) = default;
};

// "/job:J/replica:R/task:T", the name of the task (worker) a full or partial name lies in;
// "" if job or task is missing (replica defaults to 0).
std::string TaskName(const DeviceName& name);
std::string MakeTaskName(std::string_view job, int task);
// `text`, completed with the missing parts of the full name `base`, in canonical form.
StatusOr<std::string> CanonicalDeviceName(std::string_view text, const DeviceName& base);

}  // namespace millrace

#endif  // DEVICE_DEVICE_NAME_H_
