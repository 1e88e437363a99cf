// SPDX-License-Identifier: Apache-2.0
// The CUDA device over a simulated driver, with the CPU's kernels.
#include <gtest/gtest.h>

#include "tests/device_conformance/kinds.h"
#include "tests/device_conformance/program.h"
#include "tests/device_conformance/simulated_gpus.h"

namespace millrace::testing {
namespace {

// What all sessions took is given back, and they did compute there.
class NothingIsLeft final : public ::testing::Environment {
 public:
  void TearDown() override {
    SimulatedDriver* const driver = TheSimulatedDriver();
    // The last share of a machine may be that of one of its threads.
    EXPECT_TRUE(Eventually([driver] { return driver->Count() == SimulatedDriver::Census(); }));
    EXPECT_EQ(driver->Count(), SimulatedDriver::Census());
    EXPECT_GT(driver->NumCalls("cuLaunchKernel"), 0);
    EXPECT_EQ(driver->num_pageable_copies(), 0);
  }
};

// Before the first test asks for kernels.
[[maybe_unused]] const ::testing::Environment* const environment =
    (UseSimulatedGpus(), ::testing::AddGlobalTestEnvironment(new NothingIsLeft));

}  // namespace

std::vector<Kind> SessionKinds() {
  return {{"simulated_gpu", "GPU", 0, 2}, {"simulated_gpu_in_one_thread", "GPU", 0, -1}};
}

std::vector<Kind> TrainingKinds() { return {{"simulated_gpu", "GPU", 0, 2}}; }

void Prepare(const Kind&, pb::ConfigProto*) {}  // there are two

std::string Obstacle() { return ""; }

}  // namespace millrace::testing
