// SPDX-License-Identifier: Apache-2.0
// NCCL itself on all GPUs of the machine, of which there may be one: a group of one calls all of it
// and gets back what it gave. (tests/gpu/peers_test.cc holds sessions on several GPUs against the
// host's way.)
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/errors.h"
#include "base/strings.h"
#include "device/cuda/driver/cuda_libraries.h"
#include "tests/device_conformance/nccl_members.h"

namespace millrace::testing {
namespace {

class NcclOnGpusTest : public NcclMembers {
 protected:
  void SetUp() override {
    const auto driver = LoadedCudaDriver();
    ASSERT_TRUE(driver.ok()) << "no GPU: " << driver.status();
    const auto gpus = (*driver)->NumDevices();
    ASSERT_TRUE(gpus.ok() && *gpus > 0) << "no GPU: " << gpus.status();
    // NVIDIA ships it apart from the rest.
    if (const auto nccl = GetNccl(); errors::IsNotFound(nccl.status())) {
      GTEST_SKIP() << Message(nccl.status());
    } else {
      ASSERT_TRUE(nccl.ok()) << nccl.status();
    }
    for (int i = 0; i < *gpus; ++i) {
      CudaMachineOptions options;
      options.driver = *driver;
      options.ordinal = i;
      options.memory_limit = 256 << 20;
      Join(std::move(options), &GetNccl);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
  void TearDown() override {
    Forget();
    for (Member& member : members_) EXPECT_TRUE(member.machine->Synchronize(kLimit).ok());
  }

  Tensor OnDevice(int member, const Shape& shape, float first) override {
    Tensor here(kFloat, shape);
    std::iota(here.data<float>(), here.data<float>() + here.num_elements(), first);
    CudaMachineImpl* const machine = members_[member].machine.get();
    auto there = Tensor::Allocate(machine->allocator(), kFloat, shape);
    EXPECT_TRUE(there.ok()) << there.status();
    Copy(machine, there->raw_data(), here);
    return *std::move(there);
  }

  Tensor OnHost(int member, const Tensor& there) {
    Tensor here(there.dtype(), there.shape());
    CudaMachineImpl* const machine = members_[member].machine.get();
    machine->stream(StreamKind::kCompute)
        ->EnqueueCopy(MakeRef<DeviceWork>(), "result", here.raw_data(), there.raw_data(),
                      there.num_bytes());
    EXPECT_TRUE(machine->Synchronize(kLimit).ok());
    return here;
  }

  // What each member has after a collective that NCCL must have run.
  std::vector<Tensor> Values(const CollectiveParams& params) {
    std::vector<Result> results(members_.size());
    RunAll(params, &results);
    std::vector<Tensor> values;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const DeviceLink::Outcome& outcome = End(results[i]);
      EXPECT_TRUE(outcome.status.ok()) << outcome.status;
      EXPECT_TRUE(outcome.done) << "not through NCCL: " << outcome.why_not;
      values.push_back(OnHost(static_cast<int>(i), results[i].output));
    }
    return values;
  }

 private:
  static void Copy(CudaMachineImpl* machine, void* to, const Tensor& from) {
    machine->stream(StreamKind::kCompute)
        ->EnqueueCopy(MakeRef<DeviceWork>(), "operand", to, from.raw_data(), from.num_bytes());
    EXPECT_TRUE(machine->Synchronize(kLimit).ok());
  }
};

// Element i of each is first + i * step: whole numbers, which have no rounding.
void ExpectLine(const std::vector<Tensor>& values, float first, float step) {
  for (std::size_t member = 0; member < values.size(); ++member) {
    const Tensor& value = values[member];
    for (int64_t i = 0; i < value.num_elements(); ++i) {
      ASSERT_EQ(value.data<float>()[i], first + static_cast<float>(i) * step)
          << "member " << member << ", element " << i;
    }
  }
}

TEST_F(NcclOnGpusTest, ReducesGathersAndBroadcastsStepByStep) {
  const auto count = static_cast<int64_t>(members_.size());
  const float members = static_cast<float>(count);
  const float sum = 10 * members * (members - 1) / 2;  // of the members' first numbers
  for (int64_t step = 1; step <= 3; ++step) {
    SCOPED_TRACE(StrCat("step ", step));
    Begin(step);
    for (const int64_t elements : {5, 100'003, 1 << 20}) {
      const int at = static_cast<int>(elements % 1000);  // an instance of its own for each
      CollectiveParams reduce = Params(10 * at + 1);
      reduce.shape = Shape({elements});
      ExpectLine(Values(reduce), sum, members);
      CollectiveParams largest = Params(10 * at + 2);
      largest.shape = Shape({elements});
      largest.merge = MergeOp::kMax;
      ExpectLine(Values(largest), 10 * (members - 1), 1);
      CollectiveParams sent = Params(10 * at + 3, CollectiveKind::kBroadcast);
      sent.shape = Shape({elements});
      ExpectLine(Values(sent), count > 1 ? 10 : 0, 1);
      CollectiveParams gather = Params(10 * at + 4, CollectiveKind::kGather);
      gather.shape = Shape({elements * count});
      for (const Tensor& value : Values(gather)) {
        for (int64_t i = 0; i < value.num_elements(); ++i) {
          ASSERT_EQ(value.data<float>()[i], static_cast<float>(i / elements * 10 + i % elements));
        }
      }
      if (HasFailure()) return;
    }
  }
}

TEST_F(NcclOnGpusTest, MeansAreOfAllMembers) {
  Begin(1);
  CollectiveParams mean = Params(1);
  mean.shape = Shape({1000});
  mean.final = FinalOp::kDiv;
  const float members = static_cast<float>(members_.size());
  const std::vector<Tensor> values = Values(mean);
  for (const Tensor& value : values) {
    for (int64_t i = 0; i < value.num_elements(); ++i) {
      ASSERT_NEAR(value.data<float>()[i], 5 * (members - 1) + static_cast<float>(i), 1e-3);
    }
  }
}

// A communicator is aborted with the step that uses it; the next step makes a new one.
TEST_F(NcclOnGpusTest, AfterAStepThatEndedWithAnErrorTheNextOneWorks) {
  Begin(1);
  const float members = static_cast<float>(members_.size());
  const float sum = 10 * members * (members - 1) / 2;
  ExpectLine(Values(Params(1)), sum, members);
  for (int round = 0; round < 3; ++round) {
    std::vector<Result> results(members_.size());
    members_[0].machine->stream(StreamKind::kCompute)->Enqueue({results[0].work, "early", [] {
                                                                  return errors::DataLoss(
                                                                      "an earlier node");
                                                                }});
    RunAll(Params(2 + round), &results);
    for (Result& result : results) {
      EXPECT_EQ(End(result).status.code(), StatusCode::kDataLoss) << result.outcome.status;
    }
    Begin(2 + round);
    ExpectLine(Values(Params(1)), sum, members);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace millrace::testing
