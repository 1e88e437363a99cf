// /tensorflow.WorkerService over a worker of this process.
#ifndef DISTRIBUTED_RUNTIME_GRPC_WORKER_SERVICE_H_
#define DISTRIBUTED_RUNTIME_GRPC_WORKER_SERVICE_H_

#include <memory>

#include "distributed_runtime/grpc/rpc_server.h"
#include "distributed_runtime/link/link_hub.h"
#include "distributed_runtime/peer_table.h"
#include "session/worker_env.h"
#include "session/worker_interface.h"

namespace millrace {

// Decodes requests, calls the worker, encodes answers. Thread-safe.
class WorkerService {
 public:
  // All must outlive the service. Sessions are opened by masters that are who they say they are, as
  // `peers` (may be null) knows it.
  WorkerService(const WorkerEnv* env, WorkerInterface* worker, PeerTable* peers = nullptr);
  ~WorkerService();
  // The service must outlive the server, and `hub`, through which steps may also come (null:
  // they do not).
  void AddMethods(RpcServer* server, LinkHub* hub = nullptr);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_GRPC_WORKER_SERVICE_H_
