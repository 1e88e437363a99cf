// SPDX-License-Identifier: Apache-2.0
// One run with hooks around it.
#ifndef TRAINING_SESSIONS_HOOKED_RUN_H_
#define TRAINING_SESSIONS_HOOKED_RUN_H_

#include <chrono>
#include <span>
#include <vector>

#include "millrace/hooks.h"

namespace millrace {

// Asks all hooks, runs what they and the caller ask for, and gives each what it has fetched. The
// caller's fetches are returned. `*stop` is set if a hook asks to stop, even if another one fails.
// `metadata` may be null. `timeout`: of a run for which nobody has asked for one; hooks see it.
StatusOr<std::vector<Tensor>> RunHooked(Session& session, std::span<const HookPtr> hooks,
                                        const SessionRunArgs& args,
                                        std::chrono::milliseconds timeout, RunMetadata* metadata,
                                        bool* stop);

}  // namespace millrace

#endif  // TRAINING_SESSIONS_HOOKED_RUN_H_
