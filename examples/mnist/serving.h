// SPDX-License-Identifier: Apache-2.0
// What all tasks serve in the same way.
#ifndef EXAMPLES_MNIST_SERVING_H_
#define EXAMPLES_MNIST_SERVING_H_

#include <memory>

#include "examples/mnist/flags.h"
#include "millrace/pages.h"
#include "millrace/server.h"
#include "millrace/status.h"

namespace millrace::mnist {

// Of whose cluster the task is, whom it serves, and when it takes another one for lost.
void AddServerFlags(const Flags& flags, ServerOptions* options);

// The pages of a server (--http), which must outlive them. Null without the flag.
StatusOr<std::unique_ptr<Pages>> ServePages(const Flags& flags, const Server& server);

// The GPUs of a worker (--num_gpus): several workers of a machine share them. Says which are
// missing.
Status TakeGpus(const Flags& flags);

}  // namespace millrace::mnist

#endif  // EXAMPLES_MNIST_SERVING_H_
