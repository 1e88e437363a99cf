// SPDX-License-Identifier: Apache-2.0
#include "tests/device_conformance/capture_util.h"

#include <string_view>

#include "base/strings.h"

namespace millrace::testing {

std::vector<Kind> AcceleratorKinds() {
  std::vector<Kind> kinds;
  for (const Kind& kind : SessionKinds()) {
    if (std::string_view(kind.type) != "CPU") kinds.push_back(kind);
  }
  return kinds;
}

Tensor Filled(int64_t n, float value) {
  Tensor t(kFloat, {n});
  for (float& x : t.flat<float>()) x = value;
  return t;
}

Tensor Noise(const Shape& shape, uint32_t seed) {
  Tensor t(kFloat, shape);
  for (float& x : t.flat<float>()) {
    seed = seed * 1664525u + 1013904223u;
    x = (static_cast<float>(seed >> 8) / (1 << 24) - 0.5f) * 0.4f;
  }
  return t;
}

Tensor Labels(int64_t batch) {
  Tensor labels(kFloat, {batch, 10});
  for (int64_t i = 0; i < labels.num_elements(); ++i) {
    labels.data<float>()[i] = i % 10 == i / 10 % 10 ? 1.0f : 0.0f;
  }
  return labels;
}

int64_t Launched() {
  int64_t steps = 0;
  for (const CaptureReport& report : CaptureReports()) steps += report.launched_steps;
  return steps;
}

std::string Reasons() {
  std::string reasons;
  for (const CaptureReport& report : CaptureReports()) {
    StrAppend(&reasons, report.device, ", ", report.nodes, " nodes: ", report.reason, "\n");
  }
  return reasons;
}

void CaptureFixture::TearDown() {
  ExpectNothingLeft(*p);
  p.reset();
  EXPECT_TRUE(Eventually([] { return CaptureReports().empty(); }));
}

void CaptureFixture::Begin() {
  p.reset();
  SetFakeDeviceOptions({.jitter_seed = GetParam().jitter_seed});
  p.emplace(GetParam().type);
  Prepare(GetParam(), &p->config);
}

}  // namespace millrace::testing
