// SPDX-License-Identifier: Apache-2.0
// Of /millrace.ControlService: the pages of a task, and its next steps.
#ifndef DISTRIBUTED_RUNTIME_SERVICE_OBSERVE_SERVICE_H_
#define DISTRIBUTED_RUNTIME_SERVICE_OBSERVE_SERVICE_H_

#include <chrono>
#include <memory>
#include <string>

#include "distributed_runtime/pages/step_tracer.h"
#include "millrace/status.h"
#include "observe/page.h"
#include "proto/observe.pb.h"
#include "transport/grpc/credentials.h"
#include "transport/grpc/rpc_server.h"

namespace millrace {

// Pages are made on `pool`, which must outlive the server, as must all that is given. `task` is in
// the answers.
void AddObserveMethods(RpcServer* server, std::string task, ThreadPool* pool,
                       const PageTable* pages, StepTracer* tracer);

// The client's side, for "host:port". These block, and fail as CallAndWait does. What a page says
// of itself is in its status.
StatusOr<Page> ReadPage(const std::string& address, const std::string& target, Deadline deadline,
                        std::shared_ptr<const LoadedCredentials> credentials = nullptr);
// Ends soon after `limit`, with the steps that there were by then.
StatusOr<pb::TraceResponse> TraceSteps(
    const std::string& address, int num_steps, std::chrono::milliseconds limit,
    std::shared_ptr<const LoadedCredentials> credentials = nullptr);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_SERVICE_OBSERVE_SERVICE_H_
