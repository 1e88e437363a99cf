// SPDX-License-Identifier: Apache-2.0
// One task of a cluster in this process: devices, worker, master and the services around them.
#ifndef DISTRIBUTED_RUNTIME_TASK_SERVER_H_
#define DISTRIBUTED_RUNTIME_TASK_SERVER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/notification.h"
#include "base/options/engine_options.h"
#include "device/device_factory.h"
#include "kernels/kernel_registry.h"
#include "millrace/cluster.h"
#include "millrace/credentials.h"
#include "millrace/server.h"
#include "millrace/status.h"
#include "ops/op_registry.h"
#include "proto/config.pb.h"
#include "session/master_interface.h"

namespace millrace {

class Master;     // master/master.h
class PageTable;  // observe/page.h

struct TaskServerOptions {
  ServerOptions server;
  // What the composer has taken from `server` and its environment: the two limits of `server` are
  // not looked at here.
  EngineOptions engine;
  // What the composer has registered; must outlive the server.
  const OpRegistry* ops = nullptr;
  const KernelRegistry* kernels = nullptr;
  DeviceFactories devices;                  // of what is not a CPU
  std::map<std::string, int> device_count;  // of those, by type
  pb::ConfigProto default_session_config;   // merged over that of every session
  // Adds what the composer shows of the master; what it gives to the table may use the master until
  // the table is closed. Empty: nothing.
  std::function<void(const Master* master, PageTable* pages)> add_pages{};
  bool links = true;  // false: gRPC carries steps too, as between hosts
};

// What millrace::Server is made of; see there for what each function promises. Thread-safe.
class TaskServer {
 public:
  static StatusOr<std::unique_ptr<TaskServer>> Create(const TaskServerOptions& options);
  ~TaskServer();

  Status Start();
  Status Stop(Deadline grace);
  // False if the deadline passed first.
  bool WaitForShutdown(Deadline deadline);
  // Waits without a deadline, those that are under way too, have this one.
  void LimitWaits(Deadline deadline);
  std::string target() const;
  std::string address() const;

 private:
  struct Impl;
  explicit TaskServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// The master at "grpc://host:port": that of a server in this process, called directly, or a
// stub that connects at its first call, with `credentials` or, if they are empty, those of the
// process. InvalidArgument for any other text, and for credentials that cannot be used.
StatusOr<std::shared_ptr<MasterInterface>> ConnectToMaster(const std::string& target,
                                                           const Credentials& credentials = {});

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_TASK_SERVER_H_
