// SPDX-License-Identifier: Apache-2.0
// What every kind of session that trains asks of its SessionManager.
#ifndef TRAINING_SESSIONS_MANAGER_OPTIONS_H_
#define TRAINING_SESSIONS_MANAGER_OPTIONS_H_

#include <functional>
#include <string>

#include "millrace/monitored_session.h"
#include "millrace/session_manager.h"

namespace millrace {

// `Options`: MonitoredSessionOptions or SupervisorOptions. The scaffold is finalized.
template <typename Options>
SessionManagerOptions ManagerOptions(const Options& options, const Scaffold& scaffold,
                                     const std::function<void(const std::string& line)>& log) {
  return {.session = options.session,
          .ready_op = scaffold.ready_op,
          .ready_for_local_init_op = scaffold.ready_for_local_init_op,
          .local_init_op = scaffold.local_init_op,
          .local_init_feeds = scaffold.local_init_feeds,
          .local_init_run = scaffold.local_init_run,
          .recovery_wait = options.recovery_wait,
          .max_wait = options.max_wait,
          .on_wait = options.on_wait,
          .log = log};
}

}  // namespace millrace

#endif  // TRAINING_SESSIONS_MANAGER_OPTIONS_H_
