// SPDX-License-Identifier: Apache-2.0
// Unary calls by name over raw bytes: the half of gRPC that calls.
#ifndef TRANSPORT_GRPC_RPC_CHANNEL_H_
#define TRANSPORT_GRPC_RPC_CHANNEL_H_

#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/calls/call_options.h"
#include "base/thread_pool.h"
#include "millrace/status.h"
#include "transport/channel.h"
#include "transport/grpc/credentials.h"
#include "transport/grpc/grpc_util.h"

namespace grpc {
class Channel;
}

namespace millrace {

// A connection of its own to the task at `address`, for which `credentials` (may be null) are
// shown; with TLS whoever answers must be `task` ("/job:J/replica:0/task:N"; "": any task of the
// cluster), or why it was not believed is said to `refusal`.
std::shared_ptr<grpc::Channel> NewGrpcChannel(const std::string& address,
                                              const LoadedCredentials* credentials,
                                              const std::string& task,
                                              std::shared_ptr<TlsRefusal> refusal);

// A connection to one task, made at the first call and made again when it broke. Thread-safe.
class RpcChannel final : public Channel {
 public:
  // The answer of an OK call; its bytes are gone after the callback.
  using BytesDone = std::function<void(Status status, const grpc::ByteBuffer& response)>;

  // `peer` is how errors name the other side: a task, or the address again. Callbacks run on
  // `pool`, which must outlive the last callback.
  // `identity` goes with every call, as metadata (kPeerMetadata of peer_table.h), if not "".
  // `credentials` (may be null) are what this end shows; with TLS whoever answers must be `task`
  // ("/job:J/replica:0/task:N"), or, if that is "", any task of the cluster.
  RpcChannel(const std::string& address, std::string peer, ThreadPool* pool,
             std::string identity = "",
             std::shared_ptr<const LoadedCredentials> credentials = nullptr,
             const std::string& task = "");
  // Before the first call: answers with Lane::kControl run on `control` instead, on which no kernel
  // runs, and which must live as long as `pool`.
  void SetControlPool(ThreadPool* control) { control_ = control; }
  // Cancels the calls that run and waits for their callbacks. Not to be called from one.
  ~RpcChannel() override;
  RpcChannel(const RpcChannel&) = delete;
  RpcChannel& operator=(const RpcChannel&) = delete;

  enum class IfDown {
    kFail,  // Unavailable at once if the peer cannot be reached
    kWait,  // keep trying until the deadline
  };
  enum class Lane { kWork, kControl };
  // Statuses are those of Channel::Call, and PermissionDenied if the peer's certificate is not that
  // of the task that was meant (with kWait at the deadline). InvalidArgument if the request has
  // 2 GiB or more besides its tensors.
  void Call(const char* method, const CallOptions& options, WireWriter request, Done done,
            const CallTerms& terms = CallTerms()) override;
  // As Call; `told` gets the peer's answer.
  void Notify(const char* method, const CallOptions& options, WireWriter message,
              std::function<void(Status)> told) override;
  // The same for bytes as gRPC has them, whatever the method does.
  void Call(const char* method, const CallOptions& options, grpc::ByteBuffer request,
            IfDown if_down, BytesDone done, Lane lane = Lane::kWork);

  // Whether any call has got a good answer.
  bool has_answered() const;
  bool waits() const override;
  void FailWaiting(const Status& why) override;

  const std::string& address() const { return address_; }
  const std::string& peer() const { return peer_; }

 private:
  const std::string address_;
  const std::string peer_;
  const std::string named_peer_;  // in errors: with the address
  const std::string identity_;
  const std::shared_ptr<const LoadedCredentials> credentials_;
  const std::shared_ptr<TlsRefusal> refusal_;  // null without TLS
  ThreadPool* const pool_;
  ThreadPool* control_ = nullptr;  // null: pool_
  std::shared_ptr<grpc::Channel> channel_;
  struct Calls;
  std::unique_ptr<Calls> calls_;
};

}  // namespace millrace

#endif  // TRANSPORT_GRPC_RPC_CHANNEL_H_
