// SPDX-License-Identifier: Apache-2.0
// Why a cluster does not go on: what all its tasks say that their steps wait for.
#ifndef DISTRIBUTED_RUNTIME_WHY_WAITING_H_
#define DISTRIBUTED_RUNTIME_WHY_WAITING_H_

#include <functional>

#include "proto/waits.pb.h"
#include "session/worker_cache.h"

namespace millrace {

// Asks every task of the cluster, this one included, for what any of its steps waits for, and
// calls `done` with the ordered answers (session/wait_report.h): when all have answered, or at the
// deadline or end of the call. Nothing is stopped or changed. `done` runs on the thread of the last
// answer. `workers` must outlive that.
void AskWhyWaiting(WorkerCache* workers, const CallOptions& options,
                   std::function<void(pb::WaitReport)> done);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_WHY_WAITING_H_
