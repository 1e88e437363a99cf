// /tensorflow.MasterService over a master of this process.
#ifndef DISTRIBUTED_RUNTIME_GRPC_MASTER_SERVICE_H_
#define DISTRIBUTED_RUNTIME_GRPC_MASTER_SERVICE_H_

#include <memory>

#include "base/thread_pool.h"
#include "distributed_runtime/grpc/rpc_server.h"
#include "session/master_interface.h"

namespace millrace {

// Decodes requests, calls the master, encodes answers. Thread-safe.
class MasterService {
 public:
  // Steps begin on `pool`, behind the kernels that run there. Both must outlive the service.
  MasterService(MasterInterface* master, ThreadPool* pool);
  ~MasterService();
  // The service must outlive the server.
  void AddMethods(RpcServer* server);
  // After the server was shut down: until nothing of a call runs any more.
  void WaitForNone();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_GRPC_MASTER_SERVICE_H_
