// SPDX-License-Identifier: Apache-2.0
// The kinds of devices that tests of sessions run on: one of several .cc files says which.
#ifndef TESTS_DEVICE_CONFORMANCE_KINDS_H_
#define TESTS_DEVICE_CONFORMANCE_KINDS_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace millrace::testing {

struct Kind {
  const char* name;
  const char* type;
  uint64_t jitter_seed;
  int threads;           // between operations; -1: the caller's
  double tolerance = 0;  // of what is trained, beside the CPU's; 0: the same bits
};
inline void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

std::vector<Kind> SessionKinds();
std::vector<Kind> TrainingKinds();
// What a session needs to have two of them.
void Prepare(const Kind& kind, pb::ConfigProto* config);
// "", or why there are no such devices: then all tests fail.
std::string Obstacle();

}  // namespace millrace::testing

#endif  // TESTS_DEVICE_CONFORMANCE_KINDS_H_
