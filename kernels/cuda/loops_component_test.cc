// SPDX-License-Identifier: Apache-2.0
// The component with the kernels of GPUs: that programs find it, and that it fits them.
#include "kernels/cuda/loops_component.h"

#include <cstring>

#include "base/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_kernels.h"

namespace millrace::gpu {
namespace {

using ::testing::HasSubstr;

TEST(LoopsComponentTest, IsFoundAndFits) {
  const auto loops = LoadedCudaLoops();
  ASSERT_TRUE(loops.ok()) << loops.status();
  // Every entry is of the component.
  const void* entries[sizeof(Loops) / sizeof(void*)];
  static_assert(sizeof(entries) == sizeof(Loops));
  std::memcpy(entries, *loops, sizeof(entries));
  for (const void* const entry : entries) EXPECT_NE(entry, nullptr);
  EXPECT_EQ(*LoadedCudaLoops(), *loops);
}

TEST(LoopsComponentTest, CallsGoThroughAndComeBackWithoutAGpu) {
  const auto loops = LoadedCudaLoops();
  ASSERT_TRUE(loops.ok()) << loops.status();
  FillParams fill;
  fill.size = 4;
  EXPECT_EQ((*loops)->Fill({}, fill), nullptr);
  fill.size = 3;
  EXPECT_NE((*loops)->Fill({}, fill), nullptr);
}

TEST(LoopsComponentTest, WhatIsNotThereIsAnError) {
  const Status status = LoadCudaLoops("/nowhere/libmillrace_cuda.so").status();
  EXPECT_TRUE(errors::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("/nowhere/libmillrace_cuda.so"));
}

TEST(LoopsComponentTest, AnotherLibraryIsAnError) {
  const Status status = LoadCudaLoops("libm.so.6").status();
  EXPECT_TRUE(errors::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("another version"));
}

}  // namespace
}  // namespace millrace::gpu
