// SPDX-License-Identifier: Apache-2.0
#include "runtime/fake_accelerator.h"

#include "device/fake/fake_device.h"
#include "jit/fake_grid.h"
#include "kernels/fake/fake_kernels.h"
#include "runtime/registries.h"

namespace millrace {

void UseFakeAccelerator() {
  [[maybe_unused]] static const bool once = [] {
    AddDeviceType(FakeDeviceFactory(), [](const OpRegistry& ops, KernelRegistry& registry) {
      RegisterFakeKernels(ops, registry);  // made of those that are there
      RegisterFakeFusedKernels(ops, registry);
    });
    return true;
  }();
}

}  // namespace millrace
