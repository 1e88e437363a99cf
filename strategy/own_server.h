// The server of this process' own task.
#ifndef STRATEGY_OWN_SERVER_H_
#define STRATEGY_OWN_SERVER_H_

#include <memory>
#include <string>

#include "millrace/server.h"
#include "millrace/strategy.h"

namespace millrace {

// Where sessions are opened, and what has to live as long as they do.
struct SessionTarget {
  std::string target;
  std::unique_ptr<Server> server;  // null if it is somebody else's
};

// StrategyOptions.target, or a server for `task` with so many CPU devices, which is started.
StatusOr<SessionTarget> TargetFor(const StrategyOptions& options, const ResolvedTask& task,
                                  int cpu_devices);

}  // namespace millrace

#endif  // STRATEGY_OWN_SERVER_H_
