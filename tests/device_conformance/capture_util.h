// SPDX-License-Identifier: Apache-2.0
// What tests of recorded steps share.
#ifndef TESTS_DEVICE_CONFORMANCE_CAPTURE_UTIL_H_
#define TESTS_DEVICE_CONFORMANCE_CAPTURE_UTIL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "executor/capture/captured_program.h"
#include "gtest/gtest.h"
#include "millrace/tensor.h"
#include "tests/device_conformance/kinds.h"
#include "tests/device_conformance/program.h"

namespace millrace::testing {

// Of SessionKinds(), those with memory of their own.
std::vector<Kind> AcceleratorKinds();

// Floats [n].
Tensor Filled(int64_t n, float value);
// Floats in [-0.2, 0.2), the same numbers for everybody.
Tensor Noise(const Shape& shape, uint32_t seed);
// Floats [batch, 10], one of each row 1.
Tensor Labels(int64_t batch);

// Of the programs that there are, on all devices.
int64_t Launched();
std::string Reasons();

// A program on devices of one kind; nothing of it is left at the end.
class CaptureFixture : public ::testing::TestWithParam<Kind> {
 protected:
  CaptureFixture() { Begin(); }
  ~CaptureFixture() override { SetFakeDeviceOptions({}); }
  void SetUp() override { ASSERT_EQ(Obstacle(), ""); }
  void TearDown() override;
  // A new graph and cluster.
  void Begin();
  void Open() { p->Open(GetParam().threads); }

  std::optional<Program> p;
};

}  // namespace millrace::testing

#endif  // TESTS_DEVICE_CONFORMANCE_CAPTURE_UTIL_H_
