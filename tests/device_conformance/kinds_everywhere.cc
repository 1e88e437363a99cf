// SPDX-License-Identifier: Apache-2.0
// Those that every machine has.
#include "tests/device_conformance/kinds.h"

namespace millrace::testing {

std::vector<Kind> SessionKinds() {
  return {{"cpu", "CPU", 0, 2},
          {"fake", "FAKE", 0, 2},
          {"fake_in_one_thread", "FAKE", 0, -1},
          {"fake_with_jitter", "FAKE", 3, 2}};
}

std::vector<Kind> TrainingKinds() {
  return {{"fake", "FAKE", 0, 2}, {"fake_with_jitter", "FAKE", 11, 2}};
}

void Prepare(const Kind&, pb::ConfigProto*) {}

std::string Obstacle() { return ""; }

}  // namespace millrace::testing
