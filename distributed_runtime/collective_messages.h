// SPDX-License-Identifier: Apache-2.0
// What tasks ask of each other for collectives, between the structs of collective/ and the wire.
#ifndef DISTRIBUTED_RUNTIME_COLLECTIVE_MESSAGES_H_
#define DISTRIBUTED_RUNTIME_COLLECTIVE_MESSAGES_H_

#include <cstdint>
#include <memory>

#include "collective/collective_types.h"
#include "millrace/status.h"
#include "millrace/tensor.h"
#include "proto/worker.pb.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

namespace millrace {

void ToProto(const GroupRequest& request, pb::CompleteGroupRequest* proto);
// Internal if the device is missing: peers before 2020 sent only names.
StatusOr<GroupRequest> FromProto(const pb::CompleteGroupRequest& proto);
void ToProto(const CollectiveGroup& group, pb::CompleteGroupResponse* proto);
// InvalidArgument for names that are not devices'.
StatusOr<std::shared_ptr<const CollectiveGroup>> FromProto(const pb::CompleteGroupResponse& proto);
void ToProto(const InstanceRequest& request, pb::CompleteInstanceRequest* proto);
// InvalidArgument for shapes that are not known.
StatusOr<InstanceRequest> FromProto(const pb::CompleteInstanceRequest& proto);
void ToProto(const BufferRequest& request, pb::RecvBufRequest* proto);
BufferRequest FromProto(const pb::RecvBufRequest& proto);

// A RecvBufResponse with the bytes of `piece`, shared if they are many: they must not change
// until they have been sent.
void EncodeRecvBufResponse(const Tensor& piece, int64_t send_start_micros, WireWriter* out);
// Bytes that came in one or several chunks, as a tensor of uint8. Internal "Tensor Size Mismatch"
// unless they are `num_bytes`; InvalidArgument if it is not the message.
StatusOr<Tensor> DecodeRecvBufResponse(WireReader in, int64_t num_bytes);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_COLLECTIVE_MESSAGES_H_
