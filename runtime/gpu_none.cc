// SPDX-License-Identifier: Apache-2.0
// A build without CUDA.
#include "base/errors.h"
#include "runtime/gpu.h"

namespace millrace {
namespace {

Status NoCuda() {
  return errors::Unimplemented("this program was built without CUDA: build it with --config=cuda");
}

}  // namespace

StatusOr<std::vector<GpuInfo>> FindGpus() { return NoCuda(); }

const GpuSupport& BuiltInGpuSupport() {
  static constexpr GpuSupport kNone = {
      [](const AcceleratorOptions&) -> StatusOr<int> { return NoCuda(); },
      [](const AcceleratorOptions&) -> const DeviceFactory* { return nullptr; },
      [](const OpRegistry&, KernelRegistry&) {}};
  return kNone;
}

}  // namespace millrace
