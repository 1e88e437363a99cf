// SPDX-License-Identifier: Apache-2.0
// What clients may take of a master: sessions, graphs, steps.
#ifndef DISTRIBUTED_RUNTIME_LIMITED_MASTER_H_
#define DISTRIBUTED_RUNTIME_LIMITED_MASTER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/server.h"
#include "session/master_interface.h"

namespace millrace {

// Whether there is a quota for the master to keep; that of memory is the worker's.
bool LimitsSessions(const SessionQuotas& quotas);

// Refuses with ResourceExhausted what is beyond `quotas`, naming the task, the quota and its flag.
// What is refused changes nothing. `open_sessions` lists the handles of those that are open at
// `master`, which also closes some by itself. Both must outlive this one and its calls; `task` is
// how errors call it.
std::unique_ptr<MasterInterface> NewLimitedMaster(
    MasterInterface* master, std::string task, const SessionQuotas& quotas,
    std::function<std::vector<std::string>()> open_sessions);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_LIMITED_MASTER_H_
