// SPDX-License-Identifier: Apache-2.0
// Which device the golden cases of kernels run on: one of several .cc files answers.
#ifndef TESTS_DEVICE_CONFORMANCE_GOLDEN_DEVICE_H_
#define TESTS_DEVICE_CONFORMANCE_GOLDEN_DEVICE_H_

#include <set>
#include <string>

namespace millrace::testing {

// "FAKE", "GPU".
std::string GoldenDeviceType();

// Before anything else. "", or why the cases cannot run: then all of them fail.
std::string PrepareGoldenDevice();

// Ops that the cases should have computed in the way that this device is to test, and did not,
// given the ops of the cases that passed. After all cases.
std::set<std::string> OpsWithoutACase(const std::set<std::string>& passed);

// Ops that GPUs compute and that have no goldens: other names, and near relations, of ops that
// have some.
inline std::set<std::string> OpsWithoutGoldens() {
  return {"BiasAddV1", "InvGrad", "MatrixDiag",   "MatrixDiagPart",
          "Mod",       "Xlog1py", "_FusedConv2D", "_FusedMatMul"};
}

// True if the device is known not to tell errors that are seen in data only (an index out of
// range), as TensorFlow's GPU kernels do not: then such a case may end without an error.
bool OverlooksErrorsInData();

}  // namespace millrace::testing

#endif  // TESTS_DEVICE_CONFORMANCE_GOLDEN_DEVICE_H_
