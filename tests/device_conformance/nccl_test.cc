// SPDX-License-Identifier: Apache-2.0
// Collectives of GPUs through an NCCL that computes on the host, in the streams of simulated
// devices: each member has a task, a driver and a thread of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/errors.h"
#include "base/strings.h"
#include "device/cuda/simulated/simulated_driver.h"
#include "tests/device_conformance/nccl_members.h"

namespace millrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// --- The library ---------------------------------------------------------------------------------

// Everything in one lock. A kernel waits for those of the other members, or for its own end.
struct FakeNccl {
  struct Kernel {
    std::string what;
    std::vector<const void*> inputs;
    int arrived = 0, computed = 0;
  };
  struct World {
    int size = 0, joined = 0;
    std::vector<Kernel> kernels;
  };
  struct Comm {
    World* world = nullptr;
    int rank = 0;
    std::size_t next = 0;
    bool aborted = false;
  };

  std::mutex mu;
  std::condition_variable changed;
  std::map<std::string, World> worlds;
  std::vector<std::unique_ptr<Comm>> comms;
  std::map<void*, SimulatedDriver*> drivers;  // of compute streams
  int ids = 0, aborts = 0;
  bool never_ready = false;
  ncclResult_t error = ncclSuccess;  // that nobody waits for
} fake;

// Calls compute(inputs of all ranks) once all are there, and then write().
ncclResult_t Launch(ncclComm_t handle, cudaStream_t stream, std::string what, const void* input,
                    std::function<void(const std::vector<const void*>&)> compute,
                    std::function<void()> write) {
  auto* const comm = reinterpret_cast<FakeNccl::Comm*>(handle);
  std::size_t number = 0;
  SimulatedDriver* driver = nullptr;
  {
    std::lock_guard lock(fake.mu);
    number = comm->next++;
    auto& kernels = comm->world->kernels;
    if (kernels.size() <= number) kernels.resize(number + 1);
    FakeNccl::Kernel& kernel = kernels[number];
    kernel.inputs.resize(comm->world->size);
    if (kernel.what.empty()) kernel.what = what;
    EXPECT_EQ(kernel.what, what) << "members launch in different orders";
    driver = fake.drivers.at(stream);
  }
  const auto run = [comm, number, input, compute, write] {
    std::unique_lock lock(fake.mu);
    const auto kernel = [&]() -> FakeNccl::Kernel& { return comm->world->kernels[number]; };
    const auto wait = [&](int FakeNccl::Kernel::* count) {
      ++(kernel().*count);
      fake.changed.notify_all();
      fake.changed.wait(lock,
                        [&] { return comm->aborted || kernel().*count == comm->world->size; });
      return !comm->aborted;
    };
    kernel().inputs[comm->rank] = input;
    if (!wait(&FakeNccl::Kernel::arrived)) return;
    compute(kernel().inputs);
    if (!wait(&FakeNccl::Kernel::computed)) return;
    write();
  };
  EXPECT_TRUE(driver->LaunchFunction(stream, run).ok());
  return ncclSuccess;
}

NcclLibrary HostNccl() {
  NcclLibrary lib;
  lib.ncclGetErrorString = [](ncclResult_t) { return "a simulated error"; };
  lib.ncclGetUniqueId = [](ncclUniqueId* id) {
    std::lock_guard lock(fake.mu);
    std::memset(id, 0, sizeof(*id));
    id->internal[7] = static_cast<char>(0x90 + fake.ids++);
    return ncclSuccess;
  };
  lib.ncclCommInitRankConfig = [](ncclComm_t* made, int size, ncclUniqueId id, int rank,
                                  ncclConfig_t* config) {
    EXPECT_EQ(config->blocking, 0);
    std::lock_guard lock(fake.mu);
    FakeNccl::World& world = fake.worlds[std::string(id.internal, sizeof(id.internal))];
    world.size = size;
    ++world.joined;
    fake.comms.push_back(std::make_unique<FakeNccl::Comm>());
    fake.comms.back()->world = &world;
    fake.comms.back()->rank = rank;
    *made = reinterpret_cast<ncclComm_t>(fake.comms.back().get());
    return ncclInProgress;
  };
  lib.ncclCommGetAsyncError = [](ncclComm_t handle, ncclResult_t* state) {
    const auto* const comm = reinterpret_cast<FakeNccl::Comm*>(handle);
    std::lock_guard lock(fake.mu);
    *state = fake.error;
    if (fake.never_ready || comm->world->joined < comm->world->size) *state = ncclInProgress;
    return ncclSuccess;
  };
  lib.ncclCommAbort = [](ncclComm_t handle) {
    std::lock_guard lock(fake.mu);
    reinterpret_cast<FakeNccl::Comm*>(handle)->aborted = true;
    ++fake.aborts;
    fake.changed.notify_all();
    return ncclSuccess;
  };
  lib.ncclAllReduce = [](const void* from, void* to, std::size_t count, ncclDataType_t type,
                         ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    EXPECT_EQ(type, ncclFloat32);
    auto sums = std::make_shared<std::vector<float>>(count);
    return Launch(
        comm, stream, StrCat("reduce ", count), from,
        [sums, op](const std::vector<const void*>& inputs) {
          for (std::size_t i = 0; i < sums->size(); ++i) {
            for (const void* input : inputs) (*sums)[i] += static_cast<const float*>(input)[i];
            if (op == ncclAvg) (*sums)[i] /= static_cast<float>(inputs.size());
          }
        },
        [sums, to] { std::memcpy(to, sums->data(), sums->size() * sizeof(float)); });
  };
  lib.ncclAllGather = [](const void* from, void* to, std::size_t count, ncclDataType_t type,
                         ncclComm_t comm, cudaStream_t stream) {
    EXPECT_EQ(type, ncclInt8);
    auto all = std::make_shared<std::string>();
    return Launch(
        comm, stream, StrCat("gather ", count), from,
        [all, count](const std::vector<const void*>& inputs) {
          for (const void* input : inputs) all->append(static_cast<const char*>(input), count);
        },
        [all, to] { std::memcpy(to, all->data(), all->size()); });
  };
  lib.ncclBroadcast = [](const void* from, void* to, std::size_t count, ncclDataType_t, int root,
                         ncclComm_t comm, cudaStream_t stream) {
    auto all = std::make_shared<std::string>();
    return Launch(
        comm, stream, StrCat("broadcast ", count, " from ", root), from,
        [all, root, count](const std::vector<const void*>& inputs) {
          all->assign(static_cast<const char*>(inputs[root]), count);
        },
        [all, to] { std::memcpy(to, all->data(), all->size()); });
  };
  return lib;
}

StatusOr<const NcclLibrary*> FakeSource() {
  static const auto* const lib = new NcclLibrary(HostNccl());
  return lib;
}
StatusOr<const NcclLibrary*> NoSource() { return errors::NotFound("there is no libnccl.so.2"); }

// --- Members -------------------------------------------------------------------------------------

class NcclTest : public NcclMembers {
 protected:
  ~NcclTest() override {
    Forget();
    for (const auto& driver : drivers_) driver->Release();
    for (Member& member : members_) EXPECT_TRUE(member.machine->Synchronize(kLimit).ok());
    for (Member& member : members_) member.link.reset();
    {
      std::lock_guard lock(fake.mu);
      EXPECT_EQ(fake.aborts, static_cast<int>(fake.comms.size())) << "a communicator is left";
    }
    members_.clear();  // before their drivers
  }

  void Start(int count, const std::vector<NcclSource>& sources = {}, bool on_one_gpu = false) {
    {
      std::lock_guard lock(fake.mu);
      fake.worlds.clear();
      fake.comms.clear();
      fake.drivers.clear();
      fake.ids = fake.aborts = 0;
      fake.never_ready = false;
      fake.error = ncclSuccess;
    }
    for (int i = 0; i < count; ++i) {
      drivers_.push_back(SimulatedDriver::New({.num_devices = count}));
      CudaMachineOptions options;
      options.driver = drivers_.back().get();
      options.ordinal = on_one_gpu ? 0 : i;
      options.memory_limit = 16 << 20;
      Join(std::move(options), sources.empty() ? &FakeSource : sources[i]);
      ASSERT_FALSE(HasFatalFailure());
      fake.drivers[members_[i].machine->compute_stream()] = drivers_[i].get();
    }
  }

  Tensor OnDevice(int member, const Shape& shape, float first) override {
    auto made = Tensor::Allocate(members_[member].machine->allocator(), kFloat, shape);
    EXPECT_TRUE(made.ok()) << made.status();
    // The memory of simulated devices is the host's.
    for (int64_t i = 0; i < made->num_elements(); ++i) {
      made->data<float>()[i] = first + static_cast<float>(i);
    }
    return *std::move(made);
  }

  // All were computed, element i of each being `first + i * step`.
  void ExpectAll(std::vector<Result>& results, float first, float step) {
    for (Result& result : results) {
      const DeviceLink::Outcome& outcome = End(result);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status;
      ASSERT_TRUE(outcome.done) << outcome.why_not;
      for (int64_t i = 0; i < result.output.num_elements(); ++i) {
        ASSERT_EQ(result.output.data<float>()[i], first + static_cast<float>(i) * step) << i;
      }
    }
  }
  void ExpectHost(std::vector<Result>& results, const std::string& why) {
    for (Result& result : results) {
      const DeviceLink::Outcome& outcome = End(result);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status;
      EXPECT_FALSE(outcome.done);
      EXPECT_THAT(outcome.why_not, HasSubstr(why));
    }
  }
  static std::string TextOf(const Status& status) { return std::string(Message(status)); }

  std::vector<std::unique_ptr<SimulatedDriver>> drivers_;
};

TEST_F(NcclTest, ReducesGathersAndBroadcastsInOneCommunicator) {
  Start(3);
  for (int64_t step = 1; step <= 3; ++step) {
    Begin(step);
    std::vector<Result> sums(3), means(3), parts(3), sent(3);
    RunAll(Params(1), &sums);
    CollectiveParams mean = Params(2);
    mean.final = FinalOp::kDiv;
    RunAll(mean, &means);
    CollectiveParams gather = Params(3, CollectiveKind::kGather);
    gather.shape = Shape({9});
    RunAll(gather, &parts);
    RunAll(Params(4, CollectiveKind::kBroadcast), &sent);
    ExpectAll(sums, 30, 3);
    ExpectAll(means, 10, 1);
    ExpectAll(sent, 10, 1);
    for (Result& result : parts) {
      ASSERT_TRUE(End(result).done) << result.outcome.why_not;
      for (int i = 0; i < 9; ++i) {
        EXPECT_EQ(result.output.data<float>()[i], static_cast<float>(i / 3 * 10 + i % 3));
      }
    }
  }
  EXPECT_EQ(fake.ids, 1);
  EXPECT_EQ(fake.comms.size(), 3u);
}

TEST_F(NcclTest, OneMemberAloneIsAGroup) {
  Start(1);
  for (int64_t step = 1; step <= 2; ++step) {
    Begin(step);
    std::vector<Result> sums(1), sent(1), failed(1);
    RunAll(Params(1), &sums);
    ExpectAll(sums, 0, 1);
    RunAll(Params(2, CollectiveKind::kBroadcast), &sent);
    ExpectAll(sent, 0, 1);
    members_[0].machine->stream(StreamKind::kCompute)->Enqueue({failed[0].work, "early", [] {
                                                                  return errors::DataLoss(
                                                                      "an earlier node");
                                                                }});
    RunAll(Params(3), &failed);
    EXPECT_EQ(End(failed[0]).status.code(), StatusCode::kDataLoss) << failed[0].outcome.status;
  }
}

// The fake complains where members launch in different orders.
TEST_F(NcclTest, KeepsOneOrderWhateverTheMembersOrders) {
  Start(3);
  constexpr int kInstances = 6;
  for (int64_t step = 1; step <= 4; ++step) {
    Begin(step);
    std::vector<std::vector<Result>> results;
    for (int k = 0; k < kInstances; ++k) results.emplace_back(3);
    for (int i = 0; i < 3; ++i) {
      for (int k = 0; k < kInstances; ++k) {
        const int instance = i == 1 ? kInstances - 1 - k : (k + i) % kInstances;
        Run(i, Params(instance), &results[instance][i]);
      }
    }
    for (std::vector<Result>& result : results) ExpectAll(result, 30, 3);
  }
}

TEST_F(NcclTest, IsNotUsedWhereAMemberHasNone) {
  Start(2, {&FakeSource, &NoSource});
  Begin(1);
  std::vector<Result> results(2);
  RunAll(Params(1), &results);
  ExpectHost(results, "task:1/device:GPU:0: there is no libnccl.so.2");
  EXPECT_EQ(fake.ids, 0);
}

TEST_F(NcclTest, IsNotUsedByTwoMembersOnOneGpu) {
  Start(2, {}, /*on_one_gpu=*/true);
  Begin(1);
  std::vector<Result> results(2);
  RunAll(Params(1), &results);
  ExpectHost(results, "two members are on one GPU");
}

TEST_F(NcclTest, IsNotUsedWhereTheNodeOrTheTypeSaysSo) {
  Start(2);
  Begin(1);
  std::vector<Result> results(2), counts(2);
  Run(0, Params(1), &results[0]);
  Run(1, Params(1), &results[1], "ring");
  ExpectHost(results, "communication_hint is 'ring'");
  CollectiveParams mean = Params(2);
  mean.merge = MergeOp::kMax;
  mean.final = FinalOp::kDiv;
  RunAll(mean, &counts);
  ExpectHost(counts, "NCCL does not compute Max/Div of float");
}

TEST_F(NcclTest, ServesOneGroupOfADevice) {
  Start(2);
  Begin(1);
  std::vector<Result> first(2), second(2), again(2);
  RunAll(Params(1), &first);
  ExpectAll(first, 10, 2);
  CollectiveParams other = Params(1);
  other.group_key = 2;
  RunAll(other, &second);
  ExpectHost(second, "uses NCCL in the group 1, and only there");
  RunAll(Params(2), &again);
  ExpectAll(again, 10, 2);
}

// The kernels of two members wait for that of the third, whose device stands still.
TEST_F(NcclTest, AbortsWhatRunsWhenTheStepFailsAnywhere) {
  Start(3);
  Begin(1);
  std::vector<Result> results(3);
  drivers_[2]->Hold();
  RunAll(Params(1), &results);
  const auto running = [] {
    std::lock_guard lock(fake.mu);
    return !fake.worlds.empty() && !fake.worlds.begin()->second.kernels.empty() &&
           fake.worlds.begin()->second.kernels[0].arrived == 2;
  };
  for (const Deadline limit = DeadlineAfter(kLimit); !running();) {
    ASSERT_LT(SteadyClock::now(), limit) << "the kernels do not run";
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  steps_[1]->Abort(errors::ResourceExhausted("the root of it all"));
  for (Result& result : results) {
    EXPECT_EQ(End(result).status.code(), StatusCode::kResourceExhausted) << result.outcome.status;
    EXPECT_THAT(TextOf(result.outcome.status), HasSubstr("the root of it all"));
  }
  drivers_[2]->Release();
  for (Member& member : members_) EXPECT_TRUE(member.machine->Synchronize(kLimit).ok());
  EXPECT_EQ(fake.aborts, 3);
  // The next step makes a new communicator.
  Begin(2);
  std::vector<Result> next(3);
  RunAll(Params(1), &next);
  ExpectAll(next, 30, 3);
  EXPECT_EQ(fake.ids, 2);
}

TEST_F(NcclTest, EndsAtTheOpsTimeout) {
  Start(2);
  Begin(1);
  std::vector<Result> results(2);
  drivers_[1]->Hold();
  // Enough for both to be in the kernel by then.
  CollectiveParams params = Params(1);
  params.timeout_seconds = 2;
  RunAll(params, &results);
  for (Result& result : results) {
    EXPECT_EQ(End(result).status.code(), StatusCode::kDeadlineExceeded) << result.outcome.status;
    EXPECT_THAT(TextOf(result.outcome.status), HasSubstr("timed out during execution"));
  }
  drivers_[1]->Release();
}

TEST_F(NcclTest, EndsWhereAMemberDoesNotJoin) {
  Start(2);
  fake.never_ready = true;
  Begin(1);
  std::vector<Result> results(2);
  CollectiveParams params = Params(1);
  params.timeout_seconds = 0.2;
  RunAll(params, &results);
  for (Result& result : results) {
    EXPECT_EQ(End(result).status.code(), StatusCode::kDeadlineExceeded) << result.outcome.status;
  }
  fake.never_ready = false;
  Begin(2);
  std::vector<Result> next(2);
  RunAll(Params(1), &next);
  ExpectAll(next, 10, 2);
}

TEST_F(NcclTest, TellsErrorsThatNoKernelEndsWith) {
  Start(2);
  Begin(1);
  std::vector<Result> first(2), results(2);
  RunAll(Params(1), &first);
  ExpectAll(first, 10, 2);
  drivers_[1]->Hold();
  RunAll(Params(2), &results);
  {
    std::lock_guard lock(fake.mu);
    fake.error = ncclRemoteError;
  }
  for (Result& result : results) {
    EXPECT_EQ(End(result).status.code(), StatusCode::kInternal) << result.outcome.status;
    EXPECT_THAT(TextOf(result.outcome.status),
                AllOf(HasSubstr("a simulated error"), HasSubstr("node2")));
  }
  drivers_[1]->Release();
}

// One member's work has failed before its kernel could be enqueued: the others do not wait.
TEST_F(NcclTest, EndsForAllWhereOneEnqueuesNothing) {
  Start(2);
  Begin(1);
  std::vector<Result> results(2);
  members_[1].machine->stream(StreamKind::kCompute)->Enqueue({results[1].work, "early", [] {
                                                                return errors::DataLoss(
                                                                    "an earlier node");
                                                              }});
  RunAll(Params(1), &results);
  for (Result& result : results) {
    EXPECT_EQ(End(result).status.code(), StatusCode::kDataLoss) << result.outcome.status;
    EXPECT_THAT(TextOf(result.outcome.status), HasSubstr("an earlier node"));
  }
}

}  // namespace
}  // namespace millrace::testing
