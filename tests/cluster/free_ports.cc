// SPDX-License-Identifier: Apache-2.0
#include "tests/cluster/free_ports.h"

#include <gtest/gtest.h>

#include "base/free_port.h"

namespace millrace::testing {

std::vector<int> FreePorts(int count) {
  StatusOr<std::vector<int>> ports = FreeLoopbackPorts(count);
  EXPECT_TRUE(ports.ok()) << ports.status();
  return ports.ok() ? *std::move(ports) : std::vector<int>(count, 0);
}

}  // namespace millrace::testing
