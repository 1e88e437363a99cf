// SPDX-License-Identifier: Apache-2.0
// A GPU. Where there is none, every case fails: nothing is to pass that was not run.
#include "kernels/gpu/body.h"
#include "runtime/gpu.h"
#include "tests/device_conformance/golden_device.h"

namespace millrace::testing {

std::string GoldenDeviceType() { return "GPU"; }

std::string PrepareGoldenDevice() {
  const auto gpus = FindGpus();
  return gpus.ok() ? "" : "there is no GPU to test: " + gpus.status().ToString();
}

std::set<std::string> OpsWithoutACase(const std::set<std::string>& passed) {
  const std::set<std::string> exempt = OpsWithoutGoldens();
  std::set<std::string> missing;
  for (const gpu::BodyDef& body : gpu::AllBodies()) {
    if (!exempt.contains(body.op) && !passed.contains(body.op)) missing.insert(body.op);
  }
  return missing;
}

bool OverlooksErrorsInData() { return true; }

}  // namespace millrace::testing
