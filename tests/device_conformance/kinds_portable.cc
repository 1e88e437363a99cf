// SPDX-License-Identifier: Apache-2.0
// The simulated accelerator with the loops of GPUs.
#include "kernels/fake/fake_kernels.h"
#include "tests/device_conformance/kinds.h"
#include "tests/device_conformance/portable_body.h"

namespace millrace::testing {
namespace {

// Before the first test asks for kernels.
[[maybe_unused]] const bool uses_portable_bodies = (SetFakeBodies(&MakePortableBody), true);

}  // namespace

std::vector<Kind> SessionKinds() {
  return {{"portable", "FAKE", 0, 2}, {"portable_with_jitter", "FAKE", 3, 2}};
}

std::vector<Kind> TrainingKinds() { return {{"portable", "FAKE", 0, 2}}; }

void Prepare(const Kind&, pb::ConfigProto*) {}

std::string Obstacle() { return ""; }

}  // namespace millrace::testing
