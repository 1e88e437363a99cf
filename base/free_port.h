// SPDX-License-Identifier: Apache-2.0
// Ports for servers that are about to be started on this machine.
#ifndef BASE_FREE_PORT_H_
#define BASE_FREE_PORT_H_

#include <vector>

#include "millrace/status.h"

namespace millrace {

// Loopback ports that nothing listens on, all different, and where there are any, none that a
// connection to somewhere else may be given: a server that is started again finds its port free.
// Another server may take one before it is used. Unavailable if there are not so many sockets.
StatusOr<std::vector<int>> FreeLoopbackPorts(int count);

}  // namespace millrace

#endif  // BASE_FREE_PORT_H_
