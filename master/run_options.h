// SPDX-License-Identifier: Apache-2.0
// What a client may ask of a step besides its fetches.
#ifndef MASTER_RUN_OPTIONS_H_
#define MASTER_RUN_OPTIONS_H_

#include "millrace/status.h"
#include "proto/config.pb.h"
#include "session/worker_env.h"

namespace millrace {

// InvalidArgument for what this session or task has not; Unimplemented for tensors that are to be
// written somewhere while they are computed.
Status CheckRunOptions(const pb::RunOptions& options, const pb::ConfigProto& session,
                       const WorkerEnv& task);

}  // namespace millrace

#endif  // MASTER_RUN_OPTIONS_H_
