// SPDX-License-Identifier: Apache-2.0
// From which machine a call of gRPC comes.
#ifndef TRANSPORT_GRPC_PEER_HOST_H_
#define TRANSPORT_GRPC_PEER_HOST_H_

#include <string>

#include "base/calls/caller_host.h"

namespace millrace {

// `peer` is how gRPC names the other end of a call that has not ended: as long as it has calls,
// gRPC keeps the socket of a connection. Known of connections without TLS alone, those that a
// listener has handed over ("fd:N").
CallerHost HostOfPeer(const std::string& peer);

// The address and port of a socket's other end, "10.0.0.1:2222" or "[::1]:2222"; "?" if it has
// none.
std::string AddressOfSocket(int fd);
// The same of a call, for logs, whatever `peer` is; what gRPC says where it is no address.
std::string AddressOfPeer(const std::string& peer);

}  // namespace millrace

#endif  // TRANSPORT_GRPC_PEER_HOST_H_
