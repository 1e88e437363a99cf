// SPDX-License-Identifier: Apache-2.0
// What a server was told, and what it took where it was told nothing, for people to read.
#ifndef DISTRIBUTED_RUNTIME_FLAGS_IN_FORCE_H_
#define DISTRIBUTED_RUNTIME_FLAGS_IN_FORCE_H_

#include <string>
#include <utility>
#include <vector>

#include "base/options/engine_options.h"
#include "millrace/server.h"
#include "transport/grpc/rpc_server.h"

namespace millrace {

// Names and values: flags, their defaults as they came out, and variables of the environment that
// are set. Files are named and never shown: who sees the page shall not learn a secret.
std::vector<std::pair<std::string, std::string>> FlagsInForce(const ServerOptions& server,
                                                              const EngineOptions& engine,
                                                              const RpcLimits& limits);

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_FLAGS_IN_FORCE_H_
