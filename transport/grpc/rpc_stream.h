// SPDX-License-Identifier: Apache-2.0
// A stream of calls, as a server sees it.
#ifndef TRANSPORT_GRPC_RPC_STREAM_H_
#define TRANSPORT_GRPC_RPC_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "transport/grpc/rpc_serving.h"

namespace millrace {

// What gRPC calls for the stream; it goes when gRPC is done with it and nothing of it is handled.
// `method` and `serving` must outlive it.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* NewRpcStream(
    const Method* method, Serving* serving, grpc::CallbackServerContext* context);

// Ends the streams that wait for a message, and the others with their next answer.
void EndRpcStreams(Serving* serving);

}  // namespace millrace

#endif  // TRANSPORT_GRPC_RPC_STREAM_H_
