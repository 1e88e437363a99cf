// What tests of recorded steps share.
#ifndef TESTS_DEVICE_CONFORMANCE_CAPTURE_UTIL_H_
#define TESTS_DEVICE_CONFORMANCE_CAPTURE_UTIL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "executor/captured_program.h"
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

// Ends the session; simulated devices have nothing of it left then.
void ExpectNothingLeft(Program& p);

// Of the programs that there are, on all devices.
int64_t Launched();
std::string Reasons();

}  // namespace millrace::testing

#endif  // TESTS_DEVICE_CONFORMANCE_CAPTURE_UTIL_H_
