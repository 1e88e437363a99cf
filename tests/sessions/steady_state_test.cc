// SPDX-License-Identifier: Apache-2.0
// A warm training step takes no memory: counted over the whole step, feeds and fetches included.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "executor/memory/step_arena.h"
#include "gtest/gtest.h"
#include "tests/sessions/malloc_count.h"
#include "tests/sessions/steady_model.h"

namespace millrace {
namespace {

using testing::MallocCount;
using testing::ModelSize;
using testing::SteadyModel;

// With one order of nodes the block of the training step, the only program that runs again and
// again, is as small as can be, but for what alignment costs. With more, it is right for all orders
// that were met, which may let anything meet anything.
void ExpectSmallBlock(bool one_order) {
  const PlannedMemory memory = TotalPlannedMemory();
  EXPECT_EQ(memory.programs, 1);
  EXPECT_GT(memory.bound_bytes, 0);
  EXPECT_LE(memory.bound_bytes, memory.apart_bytes);
  const double most = one_order ? 1.05 * static_cast<double>(memory.bound_bytes)
                                : static_cast<double>(memory.apart_bytes);
  EXPECT_LE(static_cast<double>(memory.arena_bytes), most);
  ::testing::Test::RecordProperty("arena_bytes", static_cast<int>(memory.arena_bytes));
  ::testing::Test::RecordProperty("bound_bytes", static_cast<int>(memory.bound_bytes));
}

std::unique_ptr<SteadyModel> MakeModel(const ModelSize& size, const SessionOptions& options) {
  auto model = SteadyModel::Make(size, options);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

// The library of dense kernels takes memory six or seven times in most primitives that run, of
// which a step of the net has about twenty: 132 calls with AVX-512, 137 with AVX2. Every step takes
// as much.
constexpr int64_t kLibraryCalls = 140;

void ExpectLibraryCalls(const MallocCount& count, int steps, int64_t most_per_step) {
  EXPECT_EQ(count.library % steps, 0) << count.library;
  EXPECT_LE(count.library, most_per_step * steps);
  ::testing::Test::RecordProperty("library_calls_per_step",
                                  static_cast<int>(count.library / steps));
}

struct Case {
  const char* name;
  ModelSize size;
  int64_t library_calls;  // most of a step
};

// Small ones, and those that the bench trains.
constexpr Case kCases[] = {
    {"SmallPerceptron", {.batch = 16, .first = 64, .second = 64}, 0},
    {"SmallConvolutionalNet",
     {.convolutional = true, .batch = 16, .first = 4, .second = 8, .dense = 32},
     kLibraryCalls},
    {"Perceptron", {.batch = 128, .first = 512, .second = 512}, 0},
    {"ConvolutionalNet",
     {.convolutional = true, .batch = 64, .first = 32, .second = 64, .dense = 1024},
     kLibraryCalls},
};

class SteadyStateTest : public ::testing::TestWithParam<Case> {};

// On the calling thread there is one order of nodes, and nothing depends on luck.
TEST_P(SteadyStateTest, TheCallersThreadTakesNoMemoryAfterThreeSteps) {
  constexpr int kSteps = 4;
  const auto model = MakeModel(GetParam().size, {.inter_op_threads = -1, .intra_op_threads = -1});
  ASSERT_NE(model, nullptr);
  ASSERT_TRUE(model->Run(1).ok());
  const float first_loss = model->loss();
  ASSERT_TRUE(model->Run(2).ok());
  const int64_t misses = TotalPlannedMemory().misses;
  const auto mallocs = model->CountMallocs(kSteps);
  ASSERT_TRUE(mallocs.ok()) << mallocs.status();
  EXPECT_EQ(mallocs->ours, 0);
  ExpectLibraryCalls(*mallocs, kSteps, GetParam().library_calls);
  const auto faults = model->CountFaults(kSteps, 10);
  ASSERT_TRUE(faults.ok()) << faults.status();
  EXPECT_EQ(*faults, 0);
  EXPECT_EQ(TotalPlannedMemory().misses, misses) << "there is one order only";
  EXPECT_LT(model->loss(), first_loss) << "it does not learn";
  ExpectSmallBlock(/*one_order=*/true);
}

// Kernels spread over one thread more, which takes scratch memory of its own when it first helps,
// whenever that is, and at the same time as the caller or not: steps that meet something new learn
// from it, some times in the life of a program. What takes memory in every step does so in every
// round.
TEST_P(SteadyStateTest, KernelsOnTwoThreadsComeToTakeNoMemory) {
  constexpr int kSteps = 4, kRounds = 50;
  const auto model = MakeModel(GetParam().size, {.inter_op_threads = -1, .intra_op_threads = 1});
  ASSERT_NE(model, nullptr);
  ASSERT_TRUE(model->Run(3).ok());
  int64_t ours = -1, misses = -1;
  for (int round = 0; round < kRounds && (ours != 0 || misses != 0); ++round) {
    const int64_t before = TotalPlannedMemory().misses;
    const auto mallocs = model->CountMallocs(kSteps);
    ASSERT_TRUE(mallocs.ok()) << mallocs.status();
    ours = mallocs->ours;
    misses = TotalPlannedMemory().misses - before;
  }
  EXPECT_EQ(ours, 0);
  EXPECT_EQ(misses, 0);
  const auto faults = model->CountFaults(kSteps, kRounds);
  ASSERT_TRUE(faults.ok()) << faults.status();
  EXPECT_EQ(*faults, 0);
  ExpectSmallBlock(/*one_order=*/false);
}

INSTANTIATE_TEST_SUITE_P(Models, SteadyStateTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Nodes on two threads: an interleaving may be deeper than any before, but per step there is
// nothing.
class ThreadedSteadyStateTest : public ::testing::TestWithParam<Case> {};

TEST_P(ThreadedSteadyStateTest, NodesOnTwoThreadsTakeLessThanACallPerStep) {
  constexpr int kSteps = 20;
  const auto model = MakeModel(GetParam().size, {.inter_op_threads = 2, .intra_op_threads = 2});
  ASSERT_NE(model, nullptr);
  // Costs are learnt and buffers grow to what is needed.
  ASSERT_TRUE(model->Run(100).ok());
  // Steps that meet a new order of nodes are learnt from, some times in the life of a program.
  MallocCount count;
  bool learns = true;
  for (int attempt = 0; attempt < 20 && learns; ++attempt) {
    const int64_t misses = TotalPlannedMemory().misses;
    ASSERT_TRUE(model->Run(2).ok());
    const auto mallocs = model->CountMallocs(kSteps);
    ASSERT_TRUE(mallocs.ok()) << mallocs.status();
    count = *mallocs;
    learns = TotalPlannedMemory().misses != misses;
  }
  EXPECT_LT(count.ours, kSteps);
  ExpectSmallBlock(/*one_order=*/false);
}

INSTANTIATE_TEST_SUITE_P(SmallModels, ThreadedSteadyStateTest,
                         ::testing::ValuesIn(kCases, kCases + 2),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MallocCountTest, Counts) {
  testing::BeginMallocCount();
  void* volatile block = std::malloc(100);
  const MallocCount count = testing::EndMallocCount();
  std::free(block);
  EXPECT_EQ(count.ours, 1);
  EXPECT_EQ(count.library, 0);
}

}  // namespace
}  // namespace millrace
