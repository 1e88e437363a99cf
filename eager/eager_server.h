// SPDX-License-Identifier: Apache-2.0
// The eager contexts of one task: opened by clients, kept as long as somebody asks for them.
#ifndef EAGER_EAGER_SERVER_H_
#define EAGER_EAGER_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "eager/context.h"
#include "eager/operation.h"
#include "millrace/status.h"
#include "proto/eager.pb.h"
#include "session/worker_interface.h"

namespace millrace {

// Thread-safe. Requests and answers that are passed by reference or pointer must stay valid until
// `done`, which is called once, on an engine thread or before the call returns. A context that is
// not there is Aborted "Unable to find a context_id matching the specified one".
class EagerServer {
 public:
  // What `env` points to must outlive the server.
  explicit EagerServer(const EagerEnv& env, const EagerLimits& limits = {});
  // Closes all contexts and waits for what runs in them. No call may begin.
  ~EagerServer();
  EagerServer(const EagerServer&) = delete;
  EagerServer& operator=(const EagerServer&) = delete;

  // InvalidArgument if there is such a context already, unless it is an older view of it.
  // `client`: whose the context is, "" if that is not known; `caller`: where he calls from.
  Status CreateContext(const pb::CreateContextRequest& request, pb::CreateContextResponse* response,
                       std::string_view client = "", const CallerHost& caller = {});
  // InvalidArgument if the view is not the one after the present one.
  Status UpdateContext(const pb::UpdateContextRequest& request, pb::UpdateContextResponse* response,
                       const CallerHost& caller = {});
  void Enqueue(const pb::EnqueueRequest& request, const CallOptions& options,
               pb::EnqueueResponse* response, EagerDone done);
  void RunComponentFunction(const pb::RunComponentFunctionRequest& request,
                            const CallOptions& options, pb::RunComponentFunctionResponse* response,
                            EagerDone done);
  // When all that runs in the context has ended.
  void WaitQueueDone(const pb::WaitQueueDoneRequest& request, EagerDone done);
  Status KeepAlive(const pb::KeepAliveRequest& request, pb::KeepAliveResponse* response);
  // A context that is not there, or has a later view, is left as it is.
  Status CloseContext(const pb::CloseContextRequest& request);

  // Whether `client` may use the context, if there is one: PermissionDenied for a context that is
  // not its own. "" is a task, which may use all.
  Status CheckContext(uint64_t context_id, std::string_view client) const;
  // Whether `client` may run something in the step: PermissionDenied if it is that of a context, or
  // of a call in one, that somebody else has made.
  Status CheckStep(int64_t step_id, std::string_view client) const;
  // Whether `client` may receive what is sent in the step: PermissionDenied unless it is one of its
  // own contexts, or a function's call (a number below zero, which nobody can guess) that no
  // context of somebody else has run.
  Status CheckReceive(int64_t step_id, std::string_view client) const;

  // Of contexts that are open.
  std::size_t num_contexts() const;

 private:
  struct Impl;
  const std::shared_ptr<Impl> impl_;  // timers may still have a share
};

}  // namespace millrace

#endif  // EAGER_EAGER_SERVER_H_
