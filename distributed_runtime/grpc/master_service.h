// /tensorflow.MasterService over a master of this process.
#ifndef DISTRIBUTED_RUNTIME_GRPC_MASTER_SERVICE_H_
#define DISTRIBUTED_RUNTIME_GRPC_MASTER_SERVICE_H_

#include <memory>

#include "distributed_runtime/grpc/rpc_server.h"
#include "session/master_interface.h"

namespace millrace {

// Decodes requests, calls the master, encodes answers. Thread-safe.
class MasterService {
 public:
  // The master must outlive the service.
  explicit MasterService(MasterInterface* master);
  ~MasterService();
  // The service must outlive the server.
  void AddMethods(RpcServer* server);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_GRPC_MASTER_SERVICE_H_
