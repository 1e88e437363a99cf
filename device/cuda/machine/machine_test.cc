// SPDX-License-Identifier: Apache-2.0
// The machine of a CUDA device over a simulated driver.
#include "device/cuda/machine/machine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "device/copy.h"
#include "device/cuda/simulated/simulated_driver.h"
#include "device/memory_report.h"

namespace millrace {
namespace {

constexpr std::chrono::seconds kLimit(30);

class MachineTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  MachineTest() : driver_(SimulatedDriver::New({.seed = GetParam()})) {}
  ~MachineTest() override {
    driver_->Release();
    for (auto& machine : machines_) machine.reset();
    EXPECT_EQ(driver_->Count(), SimulatedDriver::Census()) << "something was not given back";
  }

  CudaMachineImpl* Start(CudaMachineOptions options = {}) {
    options.driver = driver_.get();
    options.name = StrCat("/job:a/replica:0/task:0/device:GPU:", machines_.size());
    options.allow_growth = true;
    if (options.memory_limit == 0) options.memory_limit = 16 << 20;
    auto machine = CudaMachineImpl::Start(options);
    EXPECT_TRUE(machine.ok()) << machine.status();
    machines_.push_back(*std::move(machine));
    return machines_.back().get();
  }

  // A kernel in the compute stream.
  void Launch(CudaMachineImpl* on, DeviceWork* work, std::string_view node,
              std::function<void()> fn) {
    on->stream(StreamKind::kCompute)
        ->Enqueue({RefPtr<DeviceWork>::Share(work), node, [this, on, fn = std::move(fn)] {
                     return driver_->LaunchFunction(on->compute_stream(), fn);
                   }});
  }
  void LaunchFault(CudaMachineImpl* on, DeviceWork* work, std::string_view node) {
    on->stream(StreamKind::kCompute)->Enqueue({RefPtr<DeviceWork>::Share(work), node, [this, on] {
                                                 return driver_->LaunchFault(on->compute_stream());
                                               }});
  }

  static Tensor Numbers(int64_t count, float first = 0) {
    Tensor t(kFloat, Shape({count}));
    std::iota(t.data<float>(), t.data<float>() + count, first);
    return t;
  }
  // What the work came to.
  static Status Await(DeviceWork* work) {
    Mutex mu;
    CondVar changed;
    bool done = false;
    Status result;
    work->WhenIdle([&](Status status) {
      MutexLock lock(&mu);
      result = std::move(status);
      done = true;
      changed.SignalAll();
    });
    const auto deadline = std::chrono::steady_clock::now() + kLimit;
    MutexLock lock(&mu);
    while (!done) {
      if (!changed.WaitUntil(&mu, deadline) && !done) {
        work->GiveUp();
        ADD_FAILURE() << "work was not done: " << work->Pending();
      }
    }
    return result;
  }
  static StatusOr<Tensor> ToHost(CudaMachineImpl* from, const Tensor& value, DeviceWork* work) {
    Mutex mu;
    CondVar changed;
    bool done = false;
    StatusOr<Tensor> result = Tensor();
    CopyToHost(from, value, work, "fetch", [&](const Status& status, const Tensor& copy) {
      MutexLock lock(&mu);
      if (status.ok()) {
        result = copy;
      } else {
        result = status;
      }
      done = true;
      changed.SignalAll();
    });
    const auto deadline = std::chrono::steady_clock::now() + kLimit;
    MutexLock lock(&mu);
    while (!done) {
      if (!changed.WaitUntil(&mu, deadline) && !done) {
        ADD_FAILURE() << "the copy did not end";
        break;
      }
    }
    return result;
  }

  const std::unique_ptr<SimulatedDriver> driver_;
  std::vector<std::shared_ptr<CudaMachineImpl>> machines_;
};

INSTANTIATE_TEST_SUITE_P(Orders, MachineTest, ::testing::Values(0, 1, 2, 3));

TEST_P(MachineTest, AValueGoesInIsChangedAndComesBack) {
  CudaMachineImpl* const gpu = Start();
  const auto work = MakeRef<DeviceWork>();
  for (int round = 0; round < 20; ++round) {
    const Tensor host = Numbers(10000, static_cast<float>(round));
    const auto there = CopyToDevice(gpu, gpu->allocator(), host, work.get(), "feed");
    ASSERT_TRUE(there.ok()) << there.status();
    EXPECT_EQ(AcceleratorOf(there->raw_data()), gpu);
    auto* const data = static_cast<float*>(const_cast<void*>(there->raw_data()));
    Launch(gpu, work.get(), "double", [data] {
      for (int i = 0; i < 10000; ++i) data[i] *= 2;
    });
    const auto back = ToHost(gpu, *there, work.get());
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->data<float>()[9999], 2 * host.data<float>()[9999]);
  }
  EXPECT_TRUE(Await(work.get()).ok());
  EXPECT_EQ(driver_->num_pageable_copies(), 0);
}

TEST_P(MachineTest, TheHostDoesNotWaitForTheDevice) {
  CudaMachineImpl* const gpu = Start();
  const auto work = MakeRef<DeviceWork>();
  driver_->Hold();
  const Tensor host = Numbers(1000);
  const auto there = CopyToDevice(gpu, gpu->allocator(), host, work.get(), "feed");
  ASSERT_TRUE(there.ok());
  std::atomic<bool> ran{false};
  Launch(gpu, work.get(), "kernel", [&] { ran = true; });
  EXPECT_FALSE(ran);
  EXPECT_NE(work->Pending(), "");
  driver_->Release();
  EXPECT_TRUE(Await(work.get()).ok());
  EXPECT_TRUE(ran);
}

TEST_P(MachineTest, EventsOrderStreams) {
  CudaMachineImpl* const gpu = Start();
  const auto work = MakeRef<DeviceWork>();
  std::vector<int> order;  // only ever touched in an order that events make
  Stream* const copies = gpu->stream(StreamKind::kCopyIn);
  Stream* const compute = gpu->stream(StreamKind::kCompute);
  for (int i = 0; i < 50; ++i) {
    Launch(gpu, work.get(), "a", [&order, i] { order.push_back(2 * i); });
    copies->Wait(compute->Record());
    int from = 0;
    int to = 0;
    copies->EnqueueCopy(work, "copy", &to, &from, 0);
    compute->Wait(copies->Record());
    Launch(gpu, work.get(), "b", [&order, i] { order.push_back(2 * i + 1); });
  }
  EXPECT_TRUE(Await(work.get()).ok());
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST_P(MachineTest, AnEventHappensWhenWhatCameBeforeHasRun) {
  CudaMachineImpl* const gpu = Start();
  const auto work = MakeRef<DeviceWork>();
  driver_->Hold();
  std::atomic<bool> ran{false};
  Launch(gpu, work.get(), "kernel", [&] { ran = true; });
  const RefPtr<Event> event = gpu->stream(StreamKind::kCompute)->Record();
  EXPECT_FALSE(event->HasHappened());
  driver_->Release();
  EXPECT_TRUE(gpu->Synchronize(kLimit).ok());
  EXPECT_TRUE(gpu->stream(StreamKind::kCompute)->Record().get() != nullptr);
  while (!event->HasHappened()) std::this_thread::yield();
  EXPECT_TRUE(ran);
  EXPECT_TRUE(Await(work.get()).ok());
}

TEST_P(MachineTest, CallbacksSeeWhatRanBeforeThem) {
  CudaMachineImpl* const gpu = Start();
  const auto work = MakeRef<DeviceWork>();
  int counter = 0;
  std::atomic<int> right{0};
  for (int i = 1; i <= 30; ++i) {
    Launch(gpu, work.get(), "count", [&counter] { ++counter; });
    const int* const at = &counter;
    gpu->stream(StreamKind::kCompute)
        ->EnqueueCallback(work, "look", [&right, at, i](const Status& status) {
          if (status.ok() && *at >= i) ++right;
        });
    EXPECT_TRUE(gpu->Synchronize(kLimit).ok());
  }
  EXPECT_TRUE(Await(work.get()).ok());
  EXPECT_EQ(right, 30);
}

TEST_P(MachineTest, WhatAnOperationOwnsLivesUntilItHasRun) {
  CudaMachineImpl* const gpu = Start();
  const auto work = MakeRef<DeviceWork>();
  driver_->Hold();
  auto owned = std::make_shared<int>(3);
  const std::weak_ptr<int> seen = owned;
  int got = 0;
  gpu->stream(StreamKind::kCompute)
      ->Enqueue({work, "kernel", [this, gpu, owned = std::move(owned), &got] {
                   return driver_->LaunchFunction(gpu->compute_stream(),
                                                  [at = owned.get(), &got] { got = *at; });
                 }});
  EXPECT_FALSE(seen.expired());
  driver_->Release();
  EXPECT_TRUE(Await(work.get()).ok());
  EXPECT_TRUE(seen.expired());
  EXPECT_EQ(got, 3);
}

TEST_P(MachineTest, ManyOperationsNeedFewEvents) {
  CudaMachineImpl* const gpu = Start();
  const auto work = MakeRef<DeviceWork>();
  driver_->Hold();
  int count = 0;
  for (int i = 0; i < 1000; ++i) Launch(gpu, work.get(), "tiny", [&count] { ++count; });
  driver_->Release();
  EXPECT_TRUE(Await(work.get()).ok());
  EXPECT_EQ(count, 1000);
  EXPECT_LE(driver_->NumCalls("cuEventRecord"), 20);
}

TEST_P(MachineTest, WorkspaceIsFreedInTheOrderOfTheStream) {
  CudaMachineImpl* const gpu = Start();
  const auto work = MakeRef<DeviceWork>();
  driver_->Hold();
  void* places[2] = {};
  bool right = true;
  for (int i = 0; i < 2; ++i) {
    gpu->stream(StreamKind::kCompute)->Enqueue({work, "gemm", [&, i, gpu] {
                                                  const auto scratch = gpu->Workspace(1000);
                                                  if (!scratch.ok()) return scratch.status();
                                                  places[i] = *scratch;
                                                  char* const at = static_cast<char*>(*scratch);
                                                  const Status filled = gpu->driver()->Fill(
                                                      at, static_cast<unsigned char>(i + 1), 1000,
                                                      gpu->compute_stream());
                                                  if (!filled.ok()) return filled;
                                                  return driver_->LaunchFunction(
                                                      gpu->compute_stream(), [&right, at, i] {
                                                        right = right && at[0] == i + 1 &&
                                                                at[999] == i + 1;
                                                      });
                                                }});
  }
  EXPECT_EQ(places[0], places[1]);  // the second runs after the first
  EXPECT_EQ(gpu->allocator()->stats().bytes_in_use, 0);
  driver_->Release();
  EXPECT_TRUE(Await(work.get()).ok());
  EXPECT_TRUE(right);
}

TEST_P(MachineTest, HandlesAreForOperationsThatAreBeingIssued) {
  static std::atomic<int> made{0};
  static std::atomic<int> destroyed{0};
  made = 0;
  destroyed = 0;
  CudaMachineOptions options;
  options.handles.make = [](CudaHandles::Kind, void* stream) -> StatusOr<void*> {
    EXPECT_NE(stream, nullptr);
    return new int(++made);
  };
  options.handles.destroy = [](CudaHandles::Kind, void* handle) {
    ++destroyed;
    delete static_cast<int*>(handle);
  };
  CudaMachineImpl* const gpu = Start(options);
  EXPECT_FALSE(gpu->cudnn().ok());
  EXPECT_FALSE(gpu->Workspace(1).ok());
  const auto work = MakeRef<DeviceWork>();
  for (int i = 0; i < 3; ++i) {
    gpu->stream(StreamKind::kCompute)->Enqueue({work, "conv", [gpu] {
                                                  const auto first = gpu->cudnn();
                                                  const auto second = gpu->cudnn();
                                                  EXPECT_TRUE(first.ok() && second.ok());
                                                  EXPECT_EQ(*first, *second);
                                                  return OkStatus();
                                                }});
  }
  EXPECT_TRUE(Await(work.get()).ok());
  EXPECT_EQ(made, 1);  // used again
  machines_.clear();
  EXPECT_EQ(destroyed, 1);
}

TEST_P(MachineTest, AnOperationThatCannotBeIssuedFailsItsWorkAndSkipsTheRest) {
  CudaMachineImpl* const gpu = Start();
  const auto work = MakeRef<DeviceWork>();
  gpu->stream(StreamKind::kCompute)->Enqueue({work, "fc/MatMul", [] {
                                                return errors::Unimplemented(
                                                    "no algorithm for these shapes");
                                              }});
  bool ran = false;
  Launch(gpu, work.get(), "after", [&] { ran = true; });
  const Status status = Await(work.get());
  EXPECT_TRUE(errors::IsUnimplemented(status)) << status;
  EXPECT_NE(Message(status).find("{{node fc/MatMul}}"), std::string::npos) << status;
  EXPECT_FALSE(ran);
  EXPECT_TRUE(gpu->failure().ok());
  // Another step is none the worse.
  const auto next = MakeRef<DeviceWork>();
  Launch(gpu, next.get(), "other", [&] { ran = true; });
  EXPECT_TRUE(Await(next.get()).ok());
  EXPECT_TRUE(ran);
}

TEST_P(MachineTest, AnErrorOfTheDriverThatLeavesTheContextAloneIsTheOperationsOwn) {
  CudaMachineImpl* const gpu = Start();
  const auto work = MakeRef<DeviceWork>();
  driver_->FailNext("cuLaunchKernel", errors::Internal("cuLaunchKernel: CUDA_ERROR_INVALID_VALUE"));
  Launch(gpu, work.get(), "bad", [] {});
  EXPECT_TRUE(errors::IsInternal(Await(work.get())));
  EXPECT_TRUE(gpu->failure().ok());
}

TEST_P(MachineTest, AFaultOnTheDeviceNamesAllWhoMayHaveCausedIt) {
  CudaMachineImpl* const gpu = Start();
  const auto early = MakeRef<DeviceWork>();
  Launch(gpu, early.get(), "early", [] {});
  EXPECT_TRUE(Await(early.get()).ok());
  driver_->Hold();
  const auto work = MakeRef<DeviceWork>();
  Launch(gpu, work.get(), "first", [] {});
  LaunchFault(gpu, work.get(), "culprit");
  Launch(gpu, work.get(), "last", [] {});
  driver_->Release();
  const Status status = Await(work.get());
  EXPECT_TRUE(errors::IsInternal(status)) << status;
  for (const char* const part : {"CUDA_ERROR_ILLEGAL_ADDRESS", "{{node first}}", "{{node culprit}}",
                                 "{{node last}}", "MILLRACE_CUDA_BLOCKING=1"}) {
    EXPECT_NE(Message(status).find(part), std::string::npos) << part << " in " << status;
  }
  EXPECT_EQ(Message(status).find("early"), std::string::npos) << status;
}

// It may be noticed before the call that issued it has returned.
TEST_P(MachineTest, AFaultIsLookedForInWhatIsBeingIssuedToo) {
  CudaMachineImpl* const gpu = Start();
  driver_->Hold();
  const auto work = MakeRef<DeviceWork>();
  Launch(gpu, work.get(), "first", [] {});
  gpu->stream(StreamKind::kCompute)->Enqueue({work, "culprit", [&] {
                                                const Status issued =
                                                    driver_->LaunchFault(gpu->compute_stream());
                                                driver_->Release();
                                                while (gpu->failure().ok())
                                                  std::this_thread::yield();
                                                return issued;
                                              }});
  const Status status = Await(work.get());
  EXPECT_NE(Message(status).find("{{node culprit}}"), std::string::npos) << status;
  EXPECT_NE(Message(status).find("{{node first}}"), std::string::npos) << status;
}

TEST_P(MachineTest, InBlockingModeAFaultIsThatOfItsNode) {
  CudaMachineOptions options;
  options.blocking = true;
  CudaMachineImpl* const gpu = Start(options);
  const auto work = MakeRef<DeviceWork>();
  Launch(gpu, work.get(), "first", [] {});
  LaunchFault(gpu, work.get(), "culprit");
  bool ran = false;
  Launch(gpu, work.get(), "last", [&] { ran = true; });
  const Status status = Await(work.get());
  EXPECT_NE(Message(status).find("the operation was {{node culprit}}"), std::string::npos)
      << status;
  EXPECT_EQ(Message(status).find("first"), std::string::npos) << status;
  EXPECT_FALSE(ran);
}

TEST_P(MachineTest, ALostDeviceFailsEverythingThatComesLater) {
  CudaMachineImpl* const gpu = Start();
  const auto work = MakeRef<DeviceWork>();
  LaunchFault(gpu, work.get(), "culprit");
  EXPECT_FALSE(Await(work.get()).ok());
  EXPECT_FALSE(gpu->failure().ok());
  const auto next = MakeRef<DeviceWork>();
  bool ran = false;
  Launch(gpu, next.get(), "next", [&] { ran = true; });
  const Status status = Await(next.get());
  EXPECT_NE(Message(status).find("{{node culprit}}"), std::string::npos) << status;
  EXPECT_FALSE(ran);
  // Nobody waits for events and callbacks of it.
  EXPECT_TRUE(gpu->stream(StreamKind::kCopyIn)->Record()->HasHappened());
  const auto fetched = ToHost(gpu, Numbers(3), MakeRef<DeviceWork>().get());
  EXPECT_FALSE(fetched.ok());
  EXPECT_FALSE(gpu->Synchronize(kLimit).ok());
}

TEST_P(MachineTest, AFaultOfOneDeviceIsNotThatOfAnother) {
  CudaMachineImpl* const bad = Start();
  CudaMachineOptions second;
  second.ordinal = 1;
  CudaMachineImpl* const good = Start(second);
  const auto work = MakeRef<DeviceWork>();
  LaunchFault(bad, work.get(), "culprit");
  EXPECT_FALSE(Await(work.get()).ok());
  const auto other = MakeRef<DeviceWork>();
  bool ran = false;
  Launch(good, other.get(), "fine", [&] { ran = true; });
  EXPECT_TRUE(Await(other.get()).ok());
  EXPECT_TRUE(ran);
}

TEST_P(MachineTest, PeersCopyToEachOther) {
  CudaMachineImpl* const a = Start();
  CudaMachineOptions second;
  second.ordinal = 1;
  CudaMachineImpl* const b = Start(second);
  const auto work = MakeRef<DeviceWork>();
  const auto on_a = CopyToDevice(a, a->allocator(), Numbers(100, 5), work.get(), "feed");
  ASSERT_TRUE(on_a.ok());
  const auto on_b = CopyToPeer(a, b, b->allocator(), *on_a, work.get(), "move");
  ASSERT_TRUE(on_b.ok());
  EXPECT_EQ(AcceleratorOf(on_b->raw_data()), b);
  const auto back = ToHost(b, *on_b, work.get());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->data<float>()[99], 104);
  EXPECT_TRUE(Await(work.get()).ok());
}

TEST_P(MachineTest, ALargeCopyIsStagedInPieces) {
  CudaMachineOptions options;
  options.memory_limit = 60 << 20;
  CudaMachineImpl* const gpu = Start(options);
  const auto work = MakeRef<DeviceWork>();
  const int64_t count = (40 << 20) / 4 + 7;
  const Tensor host = Numbers(count);
  const auto there = CopyToDevice(gpu, gpu->allocator(), host, work.get(), "feed");
  ASSERT_TRUE(there.ok());
  EXPECT_TRUE(Await(work.get()).ok());
  EXPECT_EQ(std::memcmp(there->raw_data(), host.raw_data(), host.num_bytes()), 0);
  EXPECT_EQ(driver_->NumCalls("cuMemcpyAsync"), 2);
  EXPECT_EQ(driver_->num_pageable_copies(), 0);
  EXPECT_EQ(gpu->pinned()->stats().bytes_in_use, 0);
}

TEST_P(MachineTest, WithoutPinnedMemoryCopiesStillWork) {
  CudaMachineOptions options;
  options.pinned_limit = 1 << 20;
  CudaMachineImpl* const gpu = Start(options);
  const auto work = MakeRef<DeviceWork>();
  const Tensor host = Numbers(1 << 20);
  const auto there = CopyToDevice(gpu, gpu->allocator(), host, work.get(), "feed");
  ASSERT_TRUE(there.ok());
  const auto back = ToHost(gpu, *there, work.get());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::memcmp(back->raw_data(), host.raw_data(), host.num_bytes()), 0);
  EXPECT_TRUE(Await(work.get()).ok());
}

TEST_P(MachineTest, AFullDeviceWaitsForCopiesThatHoldMemory) {
  CudaMachineOptions options;
  options.memory_limit = 4 << 20;
  CudaMachineImpl* const gpu = Start(options);
  const auto work = MakeRef<DeviceWork>();
  driver_->Hold();
  std::atomic<bool> fetched{false};
  {
    const auto value = CopyToDevice(gpu, gpu->allocator(), Numbers(800000), work.get(), "feed");
    ASSERT_TRUE(value.ok());
    CopyToHost(gpu, *value, work.get(), "fetch",
               [&](const Status& status, const Tensor&) { fetched = status.ok(); });
  }
  std::thread later([this] { driver_->Release(); });
  EXPECT_TRUE(gpu->allocator()->Allocate(3 << 20));
  later.join();
  EXPECT_TRUE(Await(work.get()).ok());
  EXPECT_TRUE(fetched);
}

TEST_P(MachineTest, AFullDeviceSaysWhoHoldsItsMemory) {
  CudaMachineOptions options;
  options.memory_limit = 4 << 20;
  CudaMachineImpl* const gpu = Start(options);
  const auto work = MakeRef<DeviceWork>();
  const auto output = gpu->allocator()->Allocate(3 << 20);
  Launch(gpu, work.get(), "fc1/MatMul", [] {});
  EXPECT_TRUE(Await(work.get()).ok());
  EXPECT_FALSE(gpu->allocator()->Allocate(2 << 20));
  const std::string report = MemoryReport(gpu->allocator());
  EXPECT_NE(report.find("3.0 MiB {{node fc1/MatMul}}"), std::string::npos) << report;
}

TEST_P(MachineTest, TheEndOfTheMachineWaitsForWhatRuns) {
  CudaMachineImpl* const gpu = Start();
  const auto work = MakeRef<DeviceWork>();
  driver_->Hold();
  std::atomic<int> count{0};
  for (int i = 0; i < 10; ++i) Launch(gpu, work.get(), "late", [&] { ++count; });
  std::thread later([this] { driver_->Release(); });
  machines_.clear();
  later.join();
  EXPECT_EQ(count, 10);
  EXPECT_TRUE(Await(work.get()).ok());
}

TEST_P(MachineTest, ADeviceThatHangsIsLeftBehindAfterALimit) {
  CudaMachineOptions options;
  options.stop_limit = std::chrono::milliseconds(50);
  CudaMachineImpl* const gpu = Start(options);
  const auto work = MakeRef<DeviceWork>();
  driver_->Hold();
  Launch(gpu, work.get(), "endless", [] {});
  std::thread later([this, &work] {
    EXPECT_TRUE(errors::IsCancelled(Await(work.get())));
    driver_->Release();  // so that the simulation ends
  });
  machines_.clear();
  later.join();
}

TEST_P(MachineTest, TensorsMayOutliveTheMachine) {
  CudaMachineImpl* const gpu = Start();
  const auto work = MakeRef<DeviceWork>();
  auto kept = CopyToDevice(gpu, gpu->allocator(), Numbers(100), work.get(), "feed");
  ASSERT_TRUE(kept.ok());
  EXPECT_TRUE(Await(work.get()).ok());
  machines_.clear();
  EXPECT_EQ(AcceleratorOf(kept->raw_data()), nullptr);
  EXPECT_EQ(driver_->Count().allocations, 1);
  *kept = Tensor();
  EXPECT_EQ(driver_->Count().allocations, 0);
}

TEST_P(MachineTest, ThreadsShareTheMachine) {
  CudaMachineImpl* const gpu = Start();
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const auto work = MakeRef<DeviceWork>();
        const auto first = static_cast<float>(100 * t + i);
        const auto there =
            CopyToDevice(gpu, gpu->allocator(), Numbers(500, first), work.get(), "feed");
        if (!there.ok()) continue;
        auto* const data = static_cast<float*>(const_cast<void*>(there->raw_data()));
        Launch(gpu, work.get(), "add", [data] {
          for (int j = 0; j < 500; ++j) data[j] += 1;
        });
        const auto back = ToHost(gpu, *there, work.get());
        if (back.ok() && back->data<float>()[499] == first + 500) ++right;
        Await(work.get()).IgnoreError();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 100);
}

}  // namespace
}  // namespace millrace
