// SPDX-License-Identifier: Apache-2.0
#include "runtime/fake_accelerator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtime/registries.h"

namespace millrace {
namespace {

int FakeKernels() {
  const std::vector<const KernelDef*> all = AllKernels().All();
  return static_cast<int>(std::count_if(all.begin(), all.end(), [](const KernelDef* kernel) {
    return kernel->device_type == "FAKE";
  }));
}

// One test: what is added stays.
TEST(FakeAcceleratorTest, IsThereForThoseWhoAskAndOnce) {
  EXPECT_EQ(FakeKernels(), 0);
  EXPECT_TRUE(AllDeviceFactories().empty());

  UseFakeAccelerator();
  const int kernels = FakeKernels();
  EXPECT_GT(kernels, 100);
  ASSERT_EQ(AllDeviceFactories().size(), 1u);
  EXPECT_EQ(AllDeviceFactories()[0]->type(), "FAKE");

  UseFakeAccelerator();
  EXPECT_EQ(FakeKernels(), kernels);
  EXPECT_EQ(AllDeviceFactories().size(), 1u);
}

}  // namespace
}  // namespace millrace
