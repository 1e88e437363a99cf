// SPDX-License-Identifier: Apache-2.0
#include "device/gpu_options.h"

#include <gtest/gtest.h>

#include "base/errors.h"

namespace millrace {
namespace {

TEST(GpuOptionsTest, SaysWhatTheMessageSays) {
  pb::GPUOptions message;
  message.set_per_process_gpu_memory_fraction(0.25);
  message.set_allow_growth(true);
  message.set_visible_device_list("1,0");
  auto* const experimental = message.mutable_experimental();
  experimental->add_virtual_devices();
  auto* const divided = experimental->add_virtual_devices();
  divided->add_memory_limit_mb(100);
  divided->add_memory_limit_mb(200.5);
  const auto options = AcceleratorOptionsFrom(message);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->memory_fraction, 0.25);
  EXPECT_TRUE(options->allow_growth);
  EXPECT_EQ(options->visible_devices, "1,0");
  EXPECT_EQ(options->virtual_devices,
            (std::vector<std::vector<int64_t>>{{}, {100 << 20, (200 << 20) + (512 << 10)}}));
}

TEST(GpuOptionsTest, RefusesWhatCannotBe) {
  for (const double fraction : {-0.5, 1.5, 0.0 / 0.0}) {
    pb::GPUOptions message;
    message.set_per_process_gpu_memory_fraction(fraction);
    EXPECT_TRUE(errors::IsInvalidArgument(AcceleratorOptionsFrom(message).status())) << fraction;
  }
  pb::GPUOptions message;
  message.mutable_experimental()->add_virtual_devices()->add_memory_limit_mb(0);
  EXPECT_TRUE(errors::IsInvalidArgument(AcceleratorOptionsFrom(message).status()));
}

}  // namespace
}  // namespace millrace
