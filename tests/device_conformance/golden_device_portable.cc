// SPDX-License-Identifier: Apache-2.0
// The simulated accelerator with what GPUs compute: the very loops that nvcc compiles, run by the
// machine's thread.
#include <memory>

#include "base/mutex.h"
#include "kernels/fake/fake_kernels.h"
#include "kernels/gpu/body.h"
#include "runtime/fake_accelerator.h"
#include "tests/device_conformance/golden_device.h"
#include "tests/device_conformance/portable_body.h"

namespace millrace::testing {
namespace {

Mutex made_mu;
// Ops that bodies were made for.
std::set<std::string>& Made() {
  static auto* const made = new std::set<std::string>;
  return *made;
}

std::shared_ptr<StreamBody> MakePortable(KernelConstruction& c) {
  std::shared_ptr<StreamBody> body = MakePortableBody(c);
  if (body == nullptr) return nullptr;
  MutexLock lock(&made_mu);
  Made().insert(c.def().name());
  return body;
}

}  // namespace

std::string GoldenDeviceType() { return "FAKE"; }

std::string PrepareGoldenDevice() {
  UseFakeAccelerator();
  SetFakeBodies(&MakePortable);
  return "";
}

std::set<std::string> OpsWithoutACase(const std::set<std::string>& passed) {
  const std::set<std::string> exempt = OpsWithoutGoldens();
  MutexLock lock(&made_mu);
  std::set<std::string> missing;
  for (const gpu::BodyDef& body : gpu::AllBodies()) {
    if (exempt.contains(body.op)) continue;
    if (!passed.contains(body.op) || !Made().contains(body.op)) missing.insert(body.op);
  }
  return missing;
}

bool OverlooksErrorsInData() { return true; }

}  // namespace millrace::testing
