// SPDX-License-Identifier: Apache-2.0
// /tensorflow.WorkerService over a worker of this process.
#ifndef DISTRIBUTED_RUNTIME_SERVICE_WORKER_SERVICE_H_
#define DISTRIBUTED_RUNTIME_SERVICE_WORKER_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "millrace/status.h"
#include "session/worker_env.h"
#include "session/worker_interface.h"
#include "transport/method_server.h"
#include "transport/peer_table.h"

namespace millrace {

// Decodes requests, calls the worker, encodes answers. Thread-safe.
class WorkerService {
 public:
  // All must outlive the service. Sessions are opened by masters that are who they say they are, as
  // `peers` (may be null) knows it.
  WorkerService(const WorkerEnv* env, WorkerInterface* worker, PeerTable* peers = nullptr);
  // Whether a client (ServerCall::proven_client) may receive what is sent in a step; before
  // AddMethods. Without it clients may receive nothing.
  using MayReceive = std::function<Status(int64_t step_id, std::string_view client)>;
  void set_may_receive(MayReceive may_receive);
  ~WorkerService();
  // The service must outlive the server.
  void AddMethods(MethodServer* server);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_SERVICE_WORKER_SERVICE_H_
