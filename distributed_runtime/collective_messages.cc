// SPDX-License-Identifier: Apache-2.0
#include "distributed_runtime/collective_messages.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"
#include "tensor/allocator.h"
#include "tensor/tensor_proto.h"

namespace millrace {
namespace {

constexpr std::string_view kExtraType = "type.googleapis.com/tensorflow.RecvBufRespExtra";
constexpr uint32_t kResponseOptions = 4, kResponseSendStart = 5;
constexpr uint32_t kAnyType = 1, kAnyValue = 2, kExtraContent = 1;
constexpr uint32_t kWireBytes = 2;

void ToProto(const DeviceAttributes& device, pb::DeviceAttributes* proto) {
  proto->set_name(device.name);
  proto->set_device_type(device.device_type);
  proto->set_memory_limit(device.memory_limit);
  proto->set_incarnation(device.incarnation);
  proto->set_physical_device_desc(device.physical_description);
}

DeviceAttributes FromProto(const pb::DeviceAttributes& proto) {
  DeviceAttributes device;
  device.name = proto.name();
  device.device_type = proto.device_type();
  device.memory_limit = proto.memory_limit();
  device.incarnation = proto.incarnation();
  device.physical_description = proto.physical_device_desc();
  return device;
}

// Calls `use` with the body of every field `field` that holds bytes.
template <typename Use>
bool ForEachBody(WireReader in, uint32_t field, const Use& use) {
  while (!in.AtEnd()) {
    uint32_t number = 0, wire_type = 0;
    if (!in.ReadTag(&number, &wire_type)) return false;
    if (number != field || wire_type != kWireBytes) {
      if (!in.SkipValue(wire_type)) return false;
      continue;
    }
    WireReader body;
    if (!in.ReadBody(&body) || !use(body)) return false;
  }
  return true;
}

}  // namespace

void ToProto(const GroupRequest& request, pb::CompleteGroupRequest* proto) {
  proto->set_group_key(request.group_key);
  proto->set_group_size(request.group_size);
  proto->set_device_type(request.device.device_type);
  proto->set_collective_type(static_cast<int32_t>(request.kind));
  ToProto(request.device, proto->mutable_device_attributes());
  proto->set_tells_steps(request.tells_steps);
}

StatusOr<GroupRequest> FromProto(const pb::CompleteGroupRequest& proto) {
  if (!proto.has_device_attributes()) {
    return errors::Internal(
        "CompleteGroupRequest device_attributes is not set. Make sure you're running the same "
        "version of Tensorflow on all workers.");
  }
  GroupRequest request;
  request.group_key = proto.group_key();
  request.group_size = proto.group_size();
  request.kind = static_cast<CollectiveKind>(proto.collective_type());
  request.device = FromProto(proto.device_attributes());
  if (!proto.device_type().empty()) request.device.device_type = proto.device_type();
  request.tells_steps = proto.tells_steps();
  return request;
}

void ToProto(const CollectiveGroup& group, pb::CompleteGroupResponse* proto) {
  proto->set_group_key(group.key);
  proto->set_group_size(group.size());
  proto->set_device_type(group.device_type);
  proto->set_num_tasks(static_cast<int32_t>(group.devices_per_task.size()));
  proto->set_communicator_key(group.communicator_key);
  proto->set_tells_steps(group.tells_steps);
  for (const DeviceAttributes& member : group.members) {
    ToProto(member, proto->add_device_attributes());
  }
}

StatusOr<std::shared_ptr<const CollectiveGroup>> FromProto(const pb::CompleteGroupResponse& proto) {
  std::vector<DeviceAttributes> members;
  for (const pb::DeviceAttributes& member : proto.device_attributes()) {
    members.push_back(FromProto(member));
  }
  return MakeGroup(proto.group_key(), std::move(members), proto.tells_steps());
}

void ToProto(const InstanceRequest& request, pb::CompleteInstanceRequest* proto) {
  proto->set_name(request.node);
  proto->set_type(static_cast<int32_t>(request.kind));
  proto->set_data_type(static_cast<pb::DataType>(request.dtype));
  ShapeToProto(PartialShape(request.shape.dims()), proto->mutable_shape());
  proto->set_group_key(request.group_key);
  proto->set_group_size(request.group_size);
  proto->set_instance_key(request.instance_key);
  proto->set_device_type(request.device_type);
  for (const int32_t offset : request.subdiv_offsets) proto->add_subdiv_offset(offset);
  proto->set_device(request.device);
  proto->set_is_source(request.is_source);
  proto->set_step_id(request.step_id);
  if (!request.reduction.empty()) proto->set_reduction(request.reduction);
}

StatusOr<InstanceRequest> FromProto(const pb::CompleteInstanceRequest& proto) {
  InstanceRequest request;
  request.node = proto.name();
  request.kind = static_cast<CollectiveKind>(proto.type());
  request.dtype = static_cast<DataType>(proto.data_type());
  const PartialShape shape = ShapeFromProto(proto.shape());
  if (!shape.has_rank()) {
    return errors::InvalidArgument("the shape of the collective ", proto.name(), " is not known");
  }
  MR_ASSIGN_OR_RETURN(request.shape, MakeShape(shape.dims()));
  request.group_key = proto.group_key();
  request.group_size = proto.group_size();
  request.instance_key = proto.instance_key();
  request.step_id = proto.step_id();
  request.device_type = proto.device_type();
  request.subdiv_offsets.assign(proto.subdiv_offset().begin(), proto.subdiv_offset().end());
  request.device = proto.device();
  request.is_source = proto.is_source();
  request.reduction = proto.reduction();
  return request;
}

void ToProto(const BufferRequest& request, pb::RecvBufRequest* proto) {
  proto->set_step_id(request.step_id);
  proto->set_buf_rendezvous_key(request.key);
  proto->set_num_bytes(request.num_bytes);
  proto->set_src_device(request.src_device);
  proto->set_src_incarnation(request.src_incarnation);
  proto->set_dst_device(request.dst_device);
}

BufferRequest FromProto(const pb::RecvBufRequest& proto) {
  return {proto.step_id(),    proto.buf_rendezvous_key(), proto.num_bytes(),
          proto.src_device(), proto.src_incarnation(),    proto.dst_device()};
}

void EncodeRecvBufResponse(const Tensor& piece, int64_t send_start_micros, WireWriter* out) {
  out->AppendVarintField(kResponseSendStart, static_cast<uint64_t>(send_start_micros));
  const uint32_t path[] = {kResponseOptions, kAnyValue, kExtraContent};
  std::string type;
  {
    WireWriter any;
    any.AppendBytesField(kAnyType, kExtraType);
    type = any.Flatten();
  }
  out->AppendNestedBytes(path, type, piece);
}

StatusOr<Tensor> DecodeRecvBufResponse(WireReader in, int64_t num_bytes) {
  // The sizes first: memory is taken once they are known to be right.
  std::vector<WireReader> chunks;
  std::size_t total = 0;
  bool known_type = true;
  const bool parsed = ForEachBody(in, kResponseOptions, [&](WireReader any) {
    const bool typed = ForEachBody(any, kAnyType, [&](WireReader type) {
      std::string url;
      if (!type.ReadString(&url, type.remaining())) return false;
      known_type = known_type && url == kExtraType;
      return true;
    });
    return typed && ForEachBody(any, kAnyValue, [&](WireReader extra) {
             return ForEachBody(extra, kExtraContent, [&](const WireReader& chunk) {
               total += chunk.remaining();
               chunks.push_back(chunk);
               return true;
             });
           });
  });
  if (!parsed || !known_type) {
    return errors::InvalidArgument("the answer to RecvBuf cannot be parsed");
  }
  if (total != static_cast<std::size_t>(num_bytes)) {
    return errors::Internal("Tensor Size Mismatch: the answer to RecvBuf has ", total,
                            " bytes, and ", num_bytes, " were expected");
  }
  MR_ASSIGN_OR_RETURN(Tensor bytes, Tensor::Allocate(HostAllocator(), kUint8, Shape({num_bytes})));
  auto* to = bytes.data<uint8_t>();
  for (WireReader& chunk : chunks) {
    const std::size_t size = chunk.remaining();
    if (!chunk.ReadBytes(to, size)) return errors::InvalidArgument("RecvBuf ended early");
    to += size;
  }
  return bytes;
}

}  // namespace millrace
