// SPDX-License-Identifier: Apache-2.0
// A server and a client of gRPC with nothing of ours: what certificates cost where there is nothing
// else, beside which our own calls are to be read.
#ifndef TRANSPORT_GRPC_GRPC_ALONE_H_
#define TRANSPORT_GRPC_GRPC_ALONE_H_

#include <cstddef>
#include <memory>

#include "millrace/credentials.h"

namespace millrace {

// A server on loopback and a channel to it, in this process.
class GrpcAlone {
 public:
  // Without files: in the clear. Every call is answered with `answer_bytes` bytes.
  GrpcAlone(const Credentials& server, const Credentials& client, std::size_t answer_bytes);
  ~GrpcAlone();

  // One call and its answer; ends the program if it fails.
  void Call();

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace millrace

#endif  // TRANSPORT_GRPC_GRPC_ALONE_H_
