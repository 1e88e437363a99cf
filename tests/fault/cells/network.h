// SPDX-License-Identifier: Apache-2.0
// A network of the test's own, in which hosts can be cut off: what they send, and what is sent to
// them, is swallowed without a word.
#ifndef TESTS_FAULT_CELLS_NETWORK_H_
#define TESTS_FAULT_CELLS_NETWORK_H_

#include <sys/types.h>

#include <map>
#include <string>

namespace millrace::testing {

// Not thread-safe. One per process, made before the process has a second thread.
class Network {
 public:
  // This process, and what it starts, has its own user and network namespaces from here on. Not
  // empty: why that cannot be.
  std::string Enter();
  ~Network();
  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // A host with that number (1 to 250) and its address. False if it cannot be made.
  bool AddHost(int number);
  static std::string Address(int number);
  // What runs a program at the host in place of the shell that is given this: "exec ... ".
  std::string RunAt(int number) const;
  bool Cut(int number);
  bool Heal(int number);

 private:
  std::map<int, pid_t> hosts_;  // processes that keep the namespaces
};

}  // namespace millrace::testing

#endif  // TESTS_FAULT_CELLS_NETWORK_H_
