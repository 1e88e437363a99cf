// SPDX-License-Identifier: Apache-2.0
// The devices to choose from, and the choice for one set of constraints.
#ifndef PLACER_DEVICE_TABLE_H_
#define PLACER_DEVICE_TABLE_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/interned_string.h"
#include "base/string_map.h"
#include "millrace/status.h"
#include "placer/placement_log.h"
#include "placer/placer.h"
#include "placer/spec_pool.h"

namespace millrace {

// A type of device (by its rank in the order of types) and the priority of a kernel for it.
struct RankedType {
  int type;
  int priority;
  friend bool operator==(const RankedType&, const RankedType&) = default;
  friend auto operator<=>(const RankedType&, const RankedType&) = default;
};
// Best first.
using TypeList = std::vector<RankedType>;

// What a group asks for; all are numbers of the pools.
struct GroupConstraints {
  int assigned = 0, resource = 0, requested = 0;
  int types = 0;
  friend bool operator==(const GroupConstraints&, const GroupConstraints&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const GroupConstraints& r) {
    return H::combine(std::move(h), r.assigned, r.resource, r.requested, r.types);
  }
};

struct CandidateSet {
  std::vector<int> devices;             // best first
  std::vector<bool> allowed;            // by device
  ChoiceRule rule = ChoiceRule::kNone;  // why the first one is first
  int in_log = -1;
  bool Has(int device) const { return device >= 0 && allowed[device]; }
};

// Devices are numbered in the order in which they are preferred: by type, local before
// remote, by name. Not synchronised.
class DeviceTable {
 public:
  DeviceTable(const PlacerInput& input, PlacementLog* log);

  SpecPool& specs() { return specs_; }
  int num_devices() const { return static_cast<int>(devices_.size()); }
  const std::string& device_name(int device) const { return devices_[device].name; }
  const InternedString& shared_name(int device) const { return devices_[device].shared_name; }
  int device_spec(int device) const { return devices_[device].spec; }
  int device_type(int device) const { return devices_[device].type; }
  // -1 if no device has exactly this name.
  int FindDevice(int spec) const;
  // Names of the devices, sorted, ", " between them.
  std::string DeviceNames() const;
  // An address in this process, as a request; 0 if there is none.
  int local_spec() const { return local_spec_; }

  // The types that the devices have, most wanted first.
  const std::vector<std::string>& types() const { return types_; }
  int FindType(std::string_view name) const;  // -1 if no device is of this type
  int AddType(std::string_view name);         // of no device, but of a request
  int InternTypes(TypeList types);            // sorts them
  const TypeList& type_list(int types) const { return type_lists_[types]; }
  std::string TypesText(int types) const;  // "GPU CPU "
  // The types in both; priorities as TensorFlow reconciles them. Empty list if none.
  int Intersect(int a, int b);

  // All devices that a group may go to; memoised. Null if there are none: the caller then
  // finds out why.
  const CandidateSet* Choose(const GroupConstraints& request);
  // If any device satisfies the request, kernels aside.
  bool AnyMatches(int spec) const;

 private:
  struct Device {
    std::string name;
    InternedString shared_name;
    int spec = 0;
    int type = 0;
    bool is_local = false;
  };

  std::vector<int> Filter(int spec, const TypeList& types) const;
  Refusal Refuse(int device, const DeviceName& spec, const TypeList& types) const;
  ChoiceRule WhyFirst(const std::vector<int>& devices, const TypeList& types) const;
  int Record(const GroupConstraints& request, int soft, const std::vector<int>& devices);
  int Priority(int device, const TypeList& types) const;

  SpecPool specs_;
  std::vector<Device> devices_;
  std::vector<std::string> types_;
  std::vector<int> by_spec_;  // device by number of its name
  int default_device_ = -1;
  int local_spec_ = 0;
  const bool soft_, by_priority_;
  PlacementLog* const log_;
  std::vector<TypeList> type_lists_;
  std::map<TypeList, int> type_list_ids_;
  absl::flat_hash_map<uint64_t, int> intersections_;
  absl::flat_hash_map<GroupConstraints, std::unique_ptr<CandidateSet>> choices_;
};

}  // namespace millrace

#endif  // PLACER_DEVICE_TABLE_H_
