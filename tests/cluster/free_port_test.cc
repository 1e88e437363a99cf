// SPDX-License-Identifier: Apache-2.0
#include "base/free_port.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <vector>

namespace millrace {
namespace {

// A server that is started again would else find, once in a while, that somebody's connection to
// another server has its port.
TEST(FreePort, IsNoneThatAConnectionMayBeGiven) {
  int first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  if (first < 20'000) GTEST_SKIP() << "not run: connections have the ports from " << first << " on";
  const auto ports = FreeLoopbackPorts(100);
  ASSERT_TRUE(ports.ok()) << ports.status();
  EXPECT_EQ(std::set<int>(ports->begin(), ports->end()).size(), 100u);
  for (const int port : *ports) {
    EXPECT_GE(port, 1024);
    EXPECT_LT(port, first);
  }
}

}  // namespace
}  // namespace millrace
