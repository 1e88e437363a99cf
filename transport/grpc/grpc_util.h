// SPDX-License-Identifier: Apache-2.0
// What client and server sides share: bytes, statuses and the life of the library.
#ifndef TRANSPORT_GRPC_GRPC_UTIL_H_
#define TRANSPORT_GRPC_GRPC_UTIL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <vector>

#include "base/notification.h"
#include "google/protobuf/message_lite.h"
#include "millrace/status.h"
#include "transport/server_call.h"
#include "transport/wire_reader.h"
#include "transport/wire_writer.h"

namespace millrace {

// Initialises gRPC for the life of the process: it is never torn down, because tearing down
// may stall for ten seconds in this version. Called by every server and channel.
void InitGrpc();

// The message as slices; large tensors are slices that own a share of their buffer.
grpc::ByteBuffer ToByteBuffer(const WireWriter& writer);
grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message);

// Keeps a received message's slices alive while they are read.
class ReceivedBytes {
 public:
  explicit ReceivedBytes(const grpc::ByteBuffer& bytes);
  // Valid as long as this object.
  WireReader reader() const { return WireReader(pieces_); }
  std::span<const WirePiece> pieces() const { return pieces_; }
  // InvalidArgument if the bytes are not this message.
  Status Parse(google::protobuf::MessageLite* message) const {
    return ParseMessage(pieces_, message);
  }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<WirePiece> pieces_;
};

// Payloads go to grpc-status-details-bin. Text and payloads are cut so that the trailing
// metadata fit into the 8 KiB that every peer accepts.
grpc::Status ToGrpcStatus(const Status& status);
// "Stream removed" of gRPC is Unavailable.
Status FromGrpcStatus(const grpc::Status& status);

std::chrono::system_clock::time_point ToSystemTime(Deadline deadline);
Deadline FromSystemTime(std::chrono::system_clock::time_point time);

}  // namespace millrace

#endif  // TRANSPORT_GRPC_GRPC_UTIL_H_
