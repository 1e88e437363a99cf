// SPDX-License-Identifier: Apache-2.0
// What clients ask of a context: ops, calls of functions, and what else a queue holds.
#ifndef EAGER_OPERATION_H_
#define EAGER_OPERATION_H_

#include <functional>
#include <memory>

#include "eager/context.h"
#include "millrace/status.h"
#include "proto/eager.pb.h"
#include "session/worker_interface.h"

namespace millrace {

using EagerDone = std::function<void(Status)>;

// Runs an op or a function; its outputs become tensors of the context by the operation's id, its
// answer has their shapes and, of a function, their devices. `operation` and `answer` must stay
// valid until `done`, which may be called before this returns. InvalidArgument, NotFound: what is
// wrong with the operation; else the first error of a node.
void RunOperation(const std::shared_ptr<EagerContext>& context, const pb::Operation& operation,
                  const CallOptions& options, pb::QueueResponse* answer, EagerDone done);

// The same for a part of a function that another task has cut, with the numbers that its outputs
// get. Outputs of an operation without an id come back as values.
void RunComponent(const std::shared_ptr<EagerContext>& context,
                  const pb::RunComponentFunctionRequest& request, const CallOptions& options,
                  pb::RunComponentFunctionResponse* answer, EagerDone done);

// All items of a request one after the other, up to the first error. `request` and `response` must
// stay valid until `done`.
void RunQueue(const std::shared_ptr<EagerContext>& context, const pb::EnqueueRequest& request,
              const CallOptions& options, pb::EnqueueResponse* response, EagerDone done);

}  // namespace millrace

#endif  // EAGER_OPERATION_H_
