// Unary calls by name over raw bytes: the half of gRPC that calls.
#ifndef DISTRIBUTED_RUNTIME_GRPC_RPC_CHANNEL_H_
#define DISTRIBUTED_RUNTIME_GRPC_RPC_CHANNEL_H_

#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/thread_pool.h"
#include "distributed_runtime/grpc/credentials.h"
#include "distributed_runtime/grpc/grpc_util.h"
#include "millrace/status.h"
#include "session/worker_interface.h"

namespace grpc {
class Channel;
}

namespace millrace {

// A connection to one task, made at the first call and made again when it broke. Thread-safe.
class RpcChannel {
 public:
  // The answer of an OK call; its bytes are gone after the callback.
  using Done = std::function<void(Status status, const grpc::ByteBuffer& response)>;

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
  ~RpcChannel();
  RpcChannel(const RpcChannel&) = delete;
  RpcChannel& operator=(const RpcChannel&) = delete;

  enum class IfDown {
    kFail,  // Unavailable at once if the peer cannot be reached
    kWait,  // keep trying until the deadline
  };
  enum class Lane { kWork, kControl };
  // `method` is "/package.Service/Method" and must be a literal. `done` gets the peer's status,
  // or: DeadlineExceeded naming the peer; Cancelled, marked as derived, if
  // options.cancellation was cancelled; Unavailable if the connection failed; PermissionDenied if
  // the peer's certificate is not that of the task that was meant (with kWait at the deadline).
  void Call(const char* method, const CallOptions& options, grpc::ByteBuffer request,
            IfDown if_down, Done done, Lane lane = Lane::kWork);

  // Whether any call has got a good answer.
  bool has_answered() const;
  // Whether calls wait for an answer that are no questions for a sign of life.
  bool waits() const;
  // Ends them with `why`, and with what each was for: the peer is lost.
  void FailWaiting(const Status& why);

  const std::string& address() const { return address_; }
  const std::string& peer() const { return peer_; }

 private:
  const std::string address_;
  const std::string peer_;
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

#endif  // DISTRIBUTED_RUNTIME_GRPC_RPC_CHANNEL_H_
