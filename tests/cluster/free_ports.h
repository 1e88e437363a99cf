// SPDX-License-Identifier: Apache-2.0
// Ports for servers of a test.
#ifndef TESTS_CLUSTER_FREE_PORTS_H_
#define TESTS_CLUSTER_FREE_PORTS_H_

#include <vector>

namespace millrace::testing {

// Loopback ports that nothing listens on, all different. Somebody else may take one in between.
std::vector<int> FreePorts(int count);

}  // namespace millrace::testing

#endif  // TESTS_CLUSTER_FREE_PORTS_H_
