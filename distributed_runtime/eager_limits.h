// SPDX-License-Identifier: Apache-2.0
// A server's quotas, as eager contexts keep them.
#ifndef DISTRIBUTED_RUNTIME_EAGER_LIMITS_H_
#define DISTRIBUTED_RUNTIME_EAGER_LIMITS_H_

#include "eager/context.h"
#include "millrace/server.h"

namespace millrace {

inline EagerLimits EagerLimitsOf(const SessionQuotas& quotas) {
  EagerLimits limits;
  limits.contexts = quotas.max_sessions;
  limits.graph_nodes = quotas.max_graph_nodes;
  limits.graph_bytes = quotas.max_graph_size;
  limits.runs = quotas.max_steps;
  limits.memory_bytes = quotas.session_memory_limit;
  return limits;
}

}  // namespace millrace

#endif  // DISTRIBUTED_RUNTIME_EAGER_LIMITS_H_
