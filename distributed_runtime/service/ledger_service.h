// SPDX-License-Identifier: Apache-2.0
// Of /millrace.ControlService: the ledgers of a task's devices.
#ifndef DISTRIBUTED_RUNTIME_SERVICE_LEDGER_SERVICE_H_
#define DISTRIBUTED_RUNTIME_SERVICE_LEDGER_SERVICE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/notification.h"
#include "device/device.h"
#include "millrace/status.h"
#include "proto/ledger.pb.h"
#include "transport/grpc/credentials.h"
#include "transport/grpc/rpc_server.h"

namespace millrace {

// `others` are the addresses of the other tasks of the cluster. The devices must outlive the
// server.
void AddLedgerMethod(RpcServer* server, std::string task, std::vector<Device*> devices,
                     std::function<std::map<std::string, std::string>()> others);

// The client's side, for "host:port". It blocks, and fails as CallAndWait does.
StatusOr<pb::LedgerResponse> GetLedger(
    const std::string& address, Deadline deadline,
    std::shared_ptr<const LoadedCredentials> credentials = nullptr);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_SERVICE_LEDGER_SERVICE_H_
