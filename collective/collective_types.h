// SPDX-License-Identifier: Apache-2.0
// What the members of a collective agree on: which devices they are, and what they compute.
#ifndef COLLECTIVE_COLLECTIVE_TYPES_H_
#define COLLECTIVE_COLLECTIVE_TYPES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "millrace/dtype.h"
#include "millrace/shape.h"

namespace millrace {

// The numbers are the wire's.
enum class CollectiveKind : int32_t { kReduce = 0, kBroadcast = 1, kGather = 2 };
enum class MergeOp : uint8_t { kAdd, kMul, kMin, kMax };
enum class FinalOp : uint8_t { kId, kDiv };  // kDiv: by the number of members

// "reduce", "broadcast", "gather"; "collective of kind 7" for what we do not know.
std::string CollectiveKindName(CollectiveKind kind);

// "Add/Id": the names of the attributes.
std::string ReductionName(MergeOp merge, FinalOp final);

// One device that wants to be a member.
struct GroupRequest {
  int32_t group_key = 0;
  int32_t group_size = 0;
  CollectiveKind kind = CollectiveKind::kReduce;
  DeviceAttributes device;
  // Whether the member says which step its instances belong to: TensorFlow's do not.
  bool tells_steps = true;
};

// Constant once made. A member's rank is its place in `members`; devices of one task are
// neighbours.
struct CollectiveGroup {
  int32_t key = 0;
  std::string device_type;
  std::vector<DeviceAttributes> members;
  std::vector<std::string> tasks;     // of each member: "/job:J/replica:R/task:T"
  std::vector<int> devices_per_task;  // in the order of the ranks
  std::string communicator_key;       // handed on, not used here
  bool tells_steps = true;            // all members do; else none may, or they would not meet

  int size() const { return static_cast<int>(members.size()); }
  // -1 if the device is no member.
  int RankOf(std::string_view device) const;
};

// Members in the order of `members`. InvalidArgument if a name is not a full device name.
StatusOr<std::shared_ptr<const CollectiveGroup>> MakeGroup(int32_t key,
                                                           std::vector<DeviceAttributes> members,
                                                           bool tells_steps = true);

// One member's part of one collective, as its group's leader checks it against the others'.
struct InstanceRequest {
  std::string node;
  CollectiveKind kind = CollectiveKind::kReduce;
  DataType dtype = DataType::kInvalid;
  Shape shape;  // of the result
  int32_t group_key = 0;
  int32_t group_size = 0;
  int32_t instance_key = 0;
  int64_t step_id = 0;  // 0: what is agreed holds for all steps
  std::string device_type;
  std::vector<int32_t> subdiv_offsets;
  std::string device;
  bool is_source = false;  // of a broadcast
  // What a reduction computes, as "Add/Div"; empty if the member does not say: TensorFlow's
  // servers do not.
  std::string reduction;
};

// The bytes that one member has for another.
struct BufferRequest {
  int64_t step_id = 0;
  std::string key;
  int64_t num_bytes = 0;
  std::string src_device;
  uint64_t src_incarnation = 0;
  std::string dst_device;
};

}  // namespace millrace

#endif  // COLLECTIVE_COLLECTIVE_TYPES_H_
