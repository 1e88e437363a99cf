// SPDX-License-Identifier: Apache-2.0
#include "placer/device_table.h"

#include <algorithm>

#include "base/strings.h"

namespace millrace {
namespace {

bool HasPriorities(const TypeList& types) {
  return std::any_of(types.begin(), types.end(),
                     [&](const RankedType& t) { return t.priority != types.front().priority; });
}

bool SameOrder(const TypeList& a, const TypeList& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const RankedType& x, const RankedType& y) { return x.type == y.type; });
}

void Sort(TypeList* types) {
  std::sort(types->begin(), types->end(), [](const RankedType& a, const RankedType& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.type < b.type;
  });
}

}  // namespace

DeviceTable::DeviceTable(const PlacerInput& input, PlacementLog* log)
    : soft_(input.allow_soft_placement),
      by_priority_(!input.Ignores(ChoiceRule::kKernelPriority)),
      log_(log) {
  for (const PlacerDevice& device : input.devices) types_.push_back(device.type);
  std::sort(types_.begin(), types_.end());
  types_.erase(std::unique(types_.begin(), types_.end()), types_.end());
  const auto rank = [&](const std::string& type) {
    return std::find(input.type_order.begin(), input.type_order.end(), type) -
           input.type_order.begin();
  };
  std::stable_sort(types_.begin(), types_.end(),
                   [&](const std::string& a, const std::string& b) { return rank(a) < rank(b); });

  for (const PlacerDevice& given : input.devices) {
    Device device;
    device.name = given.name;
    device.shared_name = given.name;
    device.is_local = given.is_local;
    device.type = FindType(given.type);
    devices_.push_back(std::move(device));
  }
  const bool local_first = !input.Ignores(ChoiceRule::kLocal);
  std::sort(devices_.begin(), devices_.end(), [&](const Device& a, const Device& b) {
    if (a.type != b.type) return a.type < b.type;
    if (local_first && a.is_local != b.is_local) return a.is_local;
    return a.name < b.name;
  });
  for (int i = 0; i < num_devices(); ++i) {
    Device& device = devices_[i];
    // A name that cannot be parsed matches no request; the caller made the devices.
    device.spec = specs_.Parse(device.name).value_or(0);
    if (device.spec >= static_cast<int>(by_spec_.size())) by_spec_.resize(device.spec + 1, -1);
    if (device.spec != 0) by_spec_[device.spec] = i;
    if (!input.default_local_device.empty() && device.name == input.default_local_device &&
        !input.Ignores(ChoiceRule::kDefaultDevice)) {
      default_device_ = i;
    }
    if (local_spec_ == 0 && device.is_local) local_spec_ = device.spec;
  }
  if (local_spec_ == 0) local_spec_ = specs_.Parse(input.default_local_device).value_or(0);
  if (log_ != nullptr) {
    std::vector<PlacementLog::DeviceRecord> records;
    for (int i = 0; i < num_devices(); ++i) {
      const Device& device = devices_[i];
      records.push_back({device.name, types_[device.type], device.is_local, i == default_device_});
    }
    log_->SetDevices(std::move(records));
  }
}

int DeviceTable::FindDevice(int spec) const {
  return spec < static_cast<int>(by_spec_.size()) && spec > 0 ? by_spec_[spec] : -1;
}

std::string DeviceTable::DeviceNames() const {
  std::vector<std::string> names;
  for (const Device& device : devices_) names.push_back(device.name);
  std::sort(names.begin(), names.end());
  return StrJoin(names, ", ");
}

int DeviceTable::FindType(std::string_view name) const {
  const auto found = std::find(types_.begin(), types_.end(), name);
  return found == types_.end() ? -1 : static_cast<int>(found - types_.begin());
}

int DeviceTable::AddType(std::string_view name) {
  const int found = FindType(name);
  if (found >= 0) return found;
  types_.emplace_back(name);
  return static_cast<int>(types_.size()) - 1;
}

int DeviceTable::InternTypes(TypeList types) {
  Sort(&types);
  const auto [slot, added] =
      type_list_ids_.try_emplace(types, static_cast<int>(type_lists_.size()));
  if (added) type_lists_.push_back(std::move(types));
  return slot->second;
}

std::string DeviceTable::TypesText(int types) const {
  std::string text;
  for (const RankedType& type : type_lists_[types]) StrAppend(&text, types_[type.type], " ");
  return text;
}

int DeviceTable::Intersect(int a, int b) {
  if (a == b) return a;
  const uint64_t key =
      static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b);
  const auto found = intersections_.find(key);
  if (found != intersections_.end()) return found->second;
  TypeList left, right;
  for (const RankedType& x : type_lists_[a]) {
    for (const RankedType& y : type_lists_[b]) {
      if (x.type != y.type) continue;
      left.push_back(x);
      right.push_back(y);
    }
  }
  Sort(&left);
  Sort(&right);
  TypeList result;
  if (!HasPriorities(right)) {
    result = left;
  } else if (!HasPriorities(left)) {
    result = right;
  } else {
    result = left;
    if (!SameOrder(left, right)) {
      for (RankedType& type : result) type.priority = 0;
    }
  }
  const int types = InternTypes(std::move(result));
  intersections_.emplace(key, types);
  return types;
}

int DeviceTable::Priority(int device, const TypeList& types) const {
  if (!by_priority_) return 0;
  for (const RankedType& type : types) {
    if (type.type == devices_[device].type) return type.priority;
  }
  return 0;
}

Refusal DeviceTable::Refuse(int device, const DeviceName& spec, const TypeList& types) const {
  const DeviceName& name = specs_.name(devices_[device].spec);
  if (spec.job && spec.job != name.job) return Refusal::kJob;
  if (spec.replica && spec.replica != name.replica) return Refusal::kReplica;
  if (spec.task && spec.task != name.task) return Refusal::kTask;
  if (spec.type && spec.type != name.type) return Refusal::kType;
  if (spec.id && spec.id != name.id) return Refusal::kId;
  const bool has_kernel = std::any_of(types.begin(), types.end(), [&](const RankedType& t) {
    return t.type == devices_[device].type;
  });
  return has_kernel ? Refusal::kNone : Refusal::kNoKernel;
}

std::vector<int> DeviceTable::Filter(int spec, const TypeList& types) const {
  std::vector<int> devices;
  const int exact = FindDevice(spec);
  if (exact >= 0) {
    if (Refuse(exact, specs_.name(spec), types) == Refusal::kNone) devices.push_back(exact);
    return devices;
  }
  for (int i = 0; i < num_devices(); ++i) {
    if (Refuse(i, specs_.name(spec), types) == Refusal::kNone) devices.push_back(i);
  }
  // Devices are numbered by the rest of the order already.
  std::stable_sort(devices.begin(), devices.end(), [&](int a, int b) {
    if ((a == default_device_) != (b == default_device_)) return a == default_device_;
    if (a == default_device_) return false;
    return Priority(a, types) > Priority(b, types);
  });
  return devices;
}

bool DeviceTable::AnyMatches(int spec) const {
  for (const Device& device : devices_) {
    if (specs_.name(spec).Matches(specs_.name(device.spec))) return true;
  }
  return false;
}

ChoiceRule DeviceTable::WhyFirst(const std::vector<int>& devices, const TypeList& types) const {
  if (devices.size() == 1) return ChoiceRule::kOnlyCandidate;
  const int first = devices[0], second = devices[1];
  if (first == default_device_) return ChoiceRule::kDefaultDevice;
  if (Priority(first, types) != Priority(second, types)) return ChoiceRule::kKernelPriority;
  if (devices_[first].type != devices_[second].type) return ChoiceRule::kTypeOrder;
  if (devices_[first].is_local && !devices_[second].is_local) return ChoiceRule::kLocal;
  return ChoiceRule::kName;
}

int DeviceTable::Record(const GroupConstraints& request, int soft,
                        const std::vector<int>& devices) {
  PlacementLog::CandidateList list;
  list.request = specs_.Text(request.requested);
  list.soft = soft == request.requested ? "" : specs_.Text(soft);
  list.softened = soft != request.requested;
  list.types = TypesText(request.types);
  const TypeList& types = type_lists_[request.types];
  list.exact = FindDevice(soft) >= 0;
  for (const int device : devices) {
    list.devices.push_back({device, Refusal::kNone, Priority(device, types)});
  }
  for (int i = 0; i < num_devices() && !list.exact; ++i) {
    const Refusal refusal = Refuse(i, specs_.name(soft), types);
    if (refusal != Refusal::kNone) list.devices.push_back({i, refusal, Priority(i, types)});
  }
  return log_->AddCandidates(std::move(list));
}

const CandidateSet* DeviceTable::Choose(const GroupConstraints& request) {
  const auto found = choices_.find(request);
  if (found != choices_.end()) return found->second.get();
  const TypeList& types = type_lists_[request.types];
  int used = request.requested;
  std::vector<int> devices = Filter(used, types);
  // First what no one has fixed is given up, then also what resources asked for.
  for (const bool keep_resource : {true, false}) {
    if (!devices.empty() || !soft_ || request.requested == 0) break;
    DeviceName softer = specs_.name(request.requested);
    const DeviceName& assigned = specs_.name(request.assigned);
    const DeviceName& resource = specs_.name(request.resource);
    if (!assigned.type && !(keep_resource && resource.type)) softer.type.reset();
    if (!assigned.id && !(keep_resource && resource.id)) softer.id.reset();
    used = specs_.Intern(softer);
    devices = Filter(used, types);
  }
  auto set = std::make_unique<CandidateSet>();
  if (!devices.empty()) {
    set->rule = WhyFirst(devices, types);
    if (log_ != nullptr) set->in_log = Record(request, used, devices);
    set->allowed.resize(devices_.size());
    for (const int device : devices) set->allowed[device] = true;
    set->devices = std::move(devices);
  }
  const bool any = !set->devices.empty();
  const CandidateSet* result = any ? set.get() : nullptr;
  if (any) choices_.emplace(request, std::move(set));
  return result;
}

}  // namespace millrace
