// SPDX-License-Identifier: Apache-2.0
// What is said about GPUs by a build with CUDA and by one without, on machines with and without.
#include "runtime/gpu.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/errors.h"
#include "runtime/local_cluster.h"
#include "session/client_session.h"

namespace millrace {
namespace {

// Names what is missing and what to do.
void ExpectSaysWhatIsMissing(const Status& status) {
  const std::string text(Message(status));
  if (errors::IsUnimplemented(status)) {
    EXPECT_NE(text.find("--config=cuda"), std::string::npos) << status;
  } else {
    EXPECT_TRUE(errors::IsNotFound(status) || errors::IsFailedPrecondition(status)) << status;
    EXPECT_TRUE(text.find("libcuda.so.1") != std::string::npos ||
                text.find("driver") != std::string::npos)
        << status;
  }
}

class GpuTest : public ::testing::Test {
 protected:
  ~GpuTest() override { EXPECT_TRUE(SetGpuOptions({}).ok()); }
};

TEST_F(GpuTest, ThisMachineHasGpusOrSaysWhyNot) {
  const auto gpus = FindGpus();
  if (!gpus.ok()) return ExpectSaysWhatIsMissing(gpus.status());
  ASSERT_FALSE(gpus->empty());
  EXPECT_NE(gpus->front().description.find("compute capability"), std::string::npos);
  EXPECT_GT(gpus->front().memory, 0);
}

TEST_F(GpuTest, MoreGpusThanThereAreIsAnError) {
  ExpectSaysWhatIsMissing(SetGpuOptions({.count = 1000}));
  EXPECT_TRUE(SetGpuOptions({.count = 0}).ok());
  EXPECT_TRUE(errors::IsInvalidArgument(SetGpuOptions({.count = -2})));
  EXPECT_TRUE(errors::IsInvalidArgument(SetGpuOptions({.memory_fraction = 2})));
}

TEST_F(GpuTest, ATaskGetsAsManyAsThereAreAndNoMoreThanItAskedFor) {
  const auto gpus = FindGpus();
  const int there = gpus.ok() ? static_cast<int>(gpus->size()) : 0;
  for (const int asked : {-1, 0, 1, 1000}) {
    DeviceFactories factories;
    std::map<std::string, int> counts;
    if (asked >= 0) counts["GPU"] = asked;
    ASSERT_TRUE(AddGpus({}, &factories, &counts).ok());
    EXPECT_EQ(counts["GPU"], asked < 0 ? there : std::min(asked, there));
    EXPECT_EQ(factories.empty(), counts["GPU"] == 0);
  }
  DeviceFactories factories;
  std::map<std::string, int> counts{{"GPU", -1}};
  EXPECT_TRUE(errors::IsInvalidArgument(AddGpus({}, &factories, &counts)));
  // What the process wants is for who does not say.
  EXPECT_TRUE(SetGpuOptions({.count = 0}).ok());
  counts.clear();
  ASSERT_TRUE(AddGpus({}, &factories, &counts).ok());
  EXPECT_EQ(counts["GPU"], 0);
}

TEST_F(GpuTest, ASessionThatAsksForAGpuRunsWhereThereIsNone) {
  if (FindGpus().ok()) GTEST_SKIP() << "there is one: tests/gpu";
  pb::ConfigProto config;
  (*config.mutable_device_count())["GPU"] = 2;
  config.set_allow_soft_placement(true);
  const auto master = NewLocalCluster(config);
  ASSERT_TRUE(master.ok()) << master.status();
}

}  // namespace
}  // namespace millrace
