// SPDX-License-Identifier: Apache-2.0
// /tensorflow.MasterService over a master of this process.
#ifndef DISTRIBUTED_RUNTIME_SERVICE_MASTER_SERVICE_H_
#define DISTRIBUTED_RUNTIME_SERVICE_MASTER_SERVICE_H_

#include <memory>

#include "base/thread_pool.h"
#include "session/master_interface.h"
#include "transport/method_server.h"

namespace millrace {

// Decodes requests, calls the master, encodes answers. Thread-safe.
class MasterService {
 public:
  // Steps begin on `pool`, behind the kernels that run there. Both must outlive the service.
  MasterService(MasterInterface* master, ThreadPool* pool);
  ~MasterService();
  // The service must outlive the server.
  void AddMethods(MethodServer* server);
  // After the server was shut down: until nothing of a call runs any more.
  void WaitForNone();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_SERVICE_MASTER_SERVICE_H_
