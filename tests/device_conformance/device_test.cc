// SPDX-License-Identifier: Apache-2.0
// What every accelerator does with memory, streams and events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/notification.h"
#include "device/copy.h"
#include "device/device_factory.h"
#include "device/fake/fake_device.h"

namespace millrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kTask[] = "/job:test/replica:0/task:0";

// A kind of device under test. What only a simulated one can do is asked of `machine`.
struct Kind {
  const char* name;
  const DeviceFactory* (*factory)();
  uint64_t jitter_seed;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class DeviceTest : public ::testing::TestWithParam<Kind> {
 protected:
  static constexpr int64_t kMemory = int64_t{64} << 20;

  void SetUp() override {
    SetFakeDeviceOptions({.memory_limit = kMemory, .jitter_seed = GetParam().jitter_seed});
    const DeviceFactory* const factory = GetParam().factory();
    auto opened = TaskDevices::Open({factory}, kTask, {{std::string(factory->type()), 2}});
    ASSERT_TRUE(opened.ok()) << opened.status();
    task_ = *std::move(opened);
    auto made = task_->MakeDevices(nullptr);
    ASSERT_TRUE(made.ok()) << made.status();
    devices_ = *std::move(made);
    ASSERT_EQ(devices_.size(), 3u);  // a CPU comes first
    SetFakeDeviceOptions({});
  }
  // Nothing that a test took is left.
  void TearDown() override {
    if (devices_.size() != 3) return;
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(device(i)->Sync().ok());
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(accelerator(i)->allocator()->stats().bytes_in_use, 0);
    }
  }

  Device* device(int i = 0) { return devices_[i + 1].device.get(); }
  Accelerator* accelerator(int i = 0) { return AcceleratorOf(device(i)); }
  Stream* stream(StreamKind kind, int i = 0) { return accelerator(i)->stream(kind); }
  std::shared_ptr<FakeMachine> machine(int i = 0) { return FakeMachine::Find(device(i)->name()); }

  Tensor ToDevice(const Tensor& host, int i = 0) {
    const auto copy =
        CopyToDevice(accelerator(i), accelerator(i)->allocator(), host, work_.get(), "to_device");
    EXPECT_TRUE(copy.ok()) << copy.status();
    return copy.ok() ? *copy : Tensor();
  }
  // Waits for it.
  StatusOr<Tensor> TryToHost(const Tensor& value, int i = 0) {
    struct Arrival {
      Notification done;
      Status status;
      Tensor value;
    };
    const auto arrival = std::make_shared<Arrival>();
    CopyToHost(accelerator(i), value, work_.get(), "to_host",
               [arrival](const Status& status, const Tensor& copy) {
                 arrival->status = status;
                 arrival->value = copy;
                 arrival->done.Notify();
               });
    arrival->done.Wait();
    if (!arrival->status.ok()) return arrival->status;
    return arrival->value;
  }
  Tensor ToHost(const Tensor& value, int i = 0) {
    const auto copy = TryToHost(value, i);
    EXPECT_TRUE(copy.ok()) << copy.status();
    return copy.ok() ? *copy : Tensor();
  }
  Status WaitForWork() {
    const auto done = std::make_shared<Notification>();
    const auto status = std::make_shared<Status>();
    work_->WhenIdle([done, status](Status s) {
      *status = std::move(s);
      done->Notify();
    });
    done->Wait();
    work_ = MakeRef<DeviceWork>();
    return *status;
  }
  // to = from + 1 in a stream.
  void Increment(Stream* in, const Tensor& from, const Tensor& to, std::string_view node = "inc") {
    in->Enqueue(
        {work_, node, [from = from.raw_data(), to = to.raw_data(), n = from.num_elements()] {
           const auto* a = static_cast<const float*>(FakeAlias(from));
           auto* b = static_cast<float*>(FakeAlias(to));
           for (int64_t i = 0; i < n; ++i) b[i] = a[i] + 1;
           return OkStatus();
         }});
  }
  Tensor New(const Shape& shape, int i = 0) {
    const auto made = Tensor::Allocate(accelerator(i)->allocator(), kFloat, shape);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *made : Tensor();
  }
  static Tensor Numbers(int64_t n, float first = 0) {
    Tensor t(kFloat, {n});
    for (int64_t i = 0; i < n; ++i) t.data<float>()[i] = first + static_cast<float>(i % 1000);
    return t;
  }

  std::unique_ptr<TaskDevices> task_;
  std::vector<TaskDevices::Made> devices_;
  RefPtr<DeviceWork> work_ = MakeRef<DeviceWork>();
};

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceTest,
                         ::testing::Values(Kind{"fake", &FakeDeviceFactory, 0},
                                           Kind{"fake_with_jitter", &FakeDeviceFactory, 7},
                                           Kind{"fake_with_other_jitter", &FakeDeviceFactory, 8}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(DeviceTest, HasANameMemoryOfItsOwnAndALimit) {
  EXPECT_EQ(device(1)->name(), std::string(kTask) + "/device:" + device()->type() + ":1");
  EXPECT_EQ(device()->memory_space(), MemorySpace::kDevice);
  EXPECT_EQ(device()->attributes().memory_limit, kMemory);
  EXPECT_NE(device(0)->incarnation(), device(1)->incarnation());
  const Tensor t = New({100});
  EXPECT_TRUE(InDeviceMemory(t));
  EXPECT_EQ(AcceleratorOf(t.raw_data()), accelerator(0));
  EXPECT_EQ(AcceleratorOf(t.Slice(50, 60).raw_data()), accelerator(0));
  EXPECT_EQ(AcceleratorOf(New({1}, 1).raw_data()), accelerator(1));
  EXPECT_EQ(AcceleratorOf(Numbers(1).raw_data()), nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(t.raw_data()) % kTensorAlignment, 0u);
}

TEST_P(DeviceTest, ADelayHoldsUpEachOperationAndChangesNothingElse) {
  constexpr std::chrono::milliseconds kDelay(20);
  constexpr int kOperations = 3;
  const Tensor a = ToDevice(Numbers(100)), b = New({100});
  ASSERT_TRUE(WaitForWork().ok());
  const int64_t before = machine()->num_operations();
  machine()->SetDelay(kDelay);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kOperations; ++i) Increment(stream(StreamKind::kCompute), a, a);
  Increment(stream(StreamKind::kCompute), a, b);
  ASSERT_TRUE(WaitForWork().ok());
  // One after the other, each after a delay of its own; only the least is certain.
  EXPECT_GE(std::chrono::steady_clock::now() - start, (kOperations + 1) * kDelay);
  EXPECT_EQ(machine()->num_operations() - before, kOperations + 1);
  machine()->SetDelay(std::chrono::microseconds(0));
  const Tensor values = ToHost(b);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(values.data<float>()[i], static_cast<float>(i + kOperations + 1));
  }
  ASSERT_TRUE(WaitForWork().ok());
}

TEST_P(DeviceTest, CopiesTensorsOfAllSizesBothWays) {
  for (const int64_t n : {0, 1, 3, 63, 64, 65, 1000, 100'003, 2'000'000}) {
    const Tensor sent = Numbers(n);
    EXPECT_TRUE(TensorsEqual(ToHost(ToDevice(sent)), sent)) << n;
  }
  const Tensor odd = Tensor::FromValues<int8_t>({1, 2, 3, 4, 5});
  EXPECT_TRUE(TensorsEqual(ToHost(ToDevice(odd)), odd));
  const Tensor truth = Tensor::FromValues<bool>({true, false, true});
  EXPECT_TRUE(TensorsEqual(ToHost(ToDevice(truth)), truth));
}

TEST_P(DeviceTest, CopiesPartsOfTensors) {
  const Tensor whole = Numbers(1000);
  const Tensor part = ToDevice(whole.Slice(100, 301));
  EXPECT_TRUE(TensorsEqual(ToHost(part), whole.Slice(100, 301)));
  EXPECT_TRUE(TensorsEqual(ToHost(part.Slice(7, 8)), whole.Slice(107, 108)));
}

TEST_P(DeviceTest, KeepsObjectsInHostMemory) {
  const Tensor text = Tensor::String("stays");
  EXPECT_TRUE(TensorsEqual(ToDevice(text), text));
  const auto made = Tensor::Allocate(device()->allocator(), kString, Shape({2}));
  ASSERT_TRUE(made.ok());
  EXPECT_FALSE(InDeviceMemory(*made));
}

TEST_P(DeviceTest, CopiesToItsPeers) {
  const Tensor sent = Numbers(4097);
  const Tensor first = ToDevice(sent, 0);
  const auto second = CopyToPeer(accelerator(0), accelerator(1), accelerator(1)->allocator(), first,
                                 work_.get(), "peer");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(AcceleratorOf(second->raw_data()), accelerator(1));
  EXPECT_TRUE(TensorsEqual(ToHost(*second, 1), sent));
}

TEST_P(DeviceTest, RunsOperationsInTheirOrder) {
  const Tensor x = ToDevice(Numbers(100));
  const Tensor y = New({100});
  Increment(stream(StreamKind::kCompute), x, y);
  for (int i = 0; i < 9; ++i) Increment(stream(StreamKind::kCompute), y, y);
  EXPECT_TRUE(TensorsEqual(ToHost(y), Numbers(100, 10)));
}

TEST_P(DeviceTest, WaitsForEventsOfOtherStreamsAndDevices) {
  const Tensor x = ToDevice(Numbers(100));
  const Tensor y = New({100});
  ASSERT_TRUE(WaitForWork().ok());
  // Round and round through streams of both devices.
  std::vector<Stream*> streams;
  for (int i = 0; i < 2; ++i) {
    for (const StreamKind kind : {StreamKind::kCompute, StreamKind::kPeer}) {
      streams.push_back(stream(kind, i));
    }
  }
  Increment(streams[0], x, y);
  for (int i = 0; i < 39; ++i) {
    Stream* const before = streams[i % streams.size()];
    Stream* const after = streams[(i + 1) % streams.size()];
    after->Wait(before->Record());
    Increment(after, y, y);
  }
  ASSERT_TRUE(WaitForWork().ok());
  EXPECT_TRUE(TensorsEqual(ToHost(y), Numbers(100, 40)));
}

TEST_P(DeviceTest, AnEventHappensWhenWhatCameBeforeHasRun) {
  machine()->CloseGate("held");
  const Tensor x = ToDevice(Numbers(1));
  ASSERT_TRUE(WaitForWork().ok());
  Increment(stream(StreamKind::kCompute), x, x, "held");
  const RefPtr<Event> event = stream(StreamKind::kCompute)->Record();
  ASSERT_TRUE(machine()->WaitUntilSomethingStands());
  EXPECT_FALSE(event->HasHappened());
  EXPECT_THAT(work_->Pending(), AllOf(HasSubstr("{{node held}}"), HasSubstr(device()->name())));
  machine()->OpenGate("held");
  ASSERT_TRUE(WaitForWork().ok());
  ASSERT_TRUE(device()->Sync().ok());
  EXPECT_TRUE(event->HasHappened());
}

// The host frees a block while what uses it is queued; who gets the block next must not be seen.
TEST_P(DeviceTest, FreesMemoryInTheOrderOfTheStream) {
  machine()->CloseGate("held");
  Stream* const compute = stream(StreamKind::kCompute);
  const Tensor result = New({1000});
  const void* block = nullptr;
  {
    const Tensor x = ToDevice(Numbers(1000));
    block = x.raw_data();
    Increment(compute, x, result, "held");
  }
  const Tensor next = ToDevice(Numbers(1000, 500));
  EXPECT_EQ(next.raw_data(), block) << "the block should be free again";
  const Tensor other = New({1000});
  Increment(compute, next, other);
  ASSERT_TRUE(machine()->WaitUntilSomethingStands());
  machine()->OpenGate("held");
  EXPECT_TRUE(TensorsEqual(ToHost(result), Numbers(1000, 1)));
  EXPECT_TRUE(TensorsEqual(ToHost(other), Numbers(1000, 501)));
}

TEST_P(DeviceTest, KeepsWhatItCopiesFromTheHost) {
  machine()->CloseGate("to_device");
  Tensor copy;
  {
    const Tensor host = Numbers(100'000);
    copy = ToDevice(host);
  }
  // What the pool of host memory hands out now must not be what is still to be copied.
  std::vector<Tensor> others;
  for (int i = 0; i < 4; ++i) others.push_back(Numbers(100'000, 7));
  machine()->OpenGate("to_device");
  EXPECT_TRUE(TensorsEqual(ToHost(copy), Numbers(100'000)));
}

TEST_P(DeviceTest, SaysWhenItsMemoryIsUsedUp) {
  const auto too_much = Tensor::Allocate(device()->allocator(), kUint8, Shape({kMemory + 1}));
  EXPECT_TRUE(errors::IsResourceExhausted(too_much.status())) << too_much.status();
  EXPECT_THAT(std::string(Message(too_much.status())),
              AllOf(HasSubstr("OOM when allocating tensor with shape"),
                    HasSubstr(std::string(device()->allocator()->name()))));
  std::vector<Tensor> parts;
  while (true) {
    auto part = Tensor::Allocate(device()->allocator(), kUint8, Shape({int64_t{1} << 20}));
    if (!part.ok()) break;
    parts.push_back(*std::move(part));
    ASSERT_LE(parts.size(), 64u);
  }
  EXPECT_EQ(parts.size(), 64u);
  EXPECT_EQ(device()->allocator()->stats().peak_bytes_in_use, kMemory);
  parts.clear();
  EXPECT_TRUE(Tensor::Allocate(device()->allocator(), kUint8, Shape({kMemory})).ok());
}

TEST_P(DeviceTest, JoinsFreeBlocksOfAnyOrder) {
  std::vector<Tensor> parts;
  for (int i = 0; i < 64; ++i) {
    parts.push_back(*Tensor::Allocate(device()->allocator(), kUint8, Shape({int64_t{1} << 20})));
  }
  for (int i = 0; i < 64; ++i) parts[(i * 37) % 64] = Tensor();
  EXPECT_TRUE(Tensor::Allocate(device()->allocator(), kUint8, Shape({kMemory})).ok());
}

TEST_P(DeviceTest, NamesTheNodeOfItsFirstErrorAndSkipsTheRest) {
  const Tensor x = ToDevice(Numbers(10));
  const Tensor y = ToDevice(Numbers(10));
  ASSERT_TRUE(WaitForWork().ok());
  Status told;
  Notification was_told;
  work_->SetOnError([&](const Status& status) {
    told = status;
    was_told.Notify();
  });
  machine()->FailNext("bad", errors::Internal("a bit fell over"));
  Stream* const compute = stream(StreamKind::kCompute);
  Increment(compute, x, x, "good");
  Increment(compute, x, x, "bad");
  Increment(compute, x, y, "late");
  const auto late = TryToHost(y);
  EXPECT_THAT(late.status().ToString(), HasSubstr("a bit fell over"));
  was_told.Wait();
  const Status status = WaitForWork();
  EXPECT_TRUE(errors::IsInternal(status)) << status;
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr("a bit fell over"), HasSubstr("{{node bad}}"),
                                       HasSubstr(device()->name())));
  EXPECT_EQ(told, status);
  EXPECT_TRUE(TensorsEqual(ToHost(x), Numbers(10, 1)));  // an account of its own goes on
  EXPECT_TRUE(TensorsEqual(ToHost(y), Numbers(10)));
}

TEST_P(DeviceTest, SaysWhichCopyFailed) {
  machine()->FailNextCopies(errors::Internal("the bus is out"));
  const auto value = TryToHost(ToDevice(Numbers(10)));
  EXPECT_THAT(value.status().ToString(),
              AllOf(HasSubstr("the bus is out"), HasSubstr("{{node to_device}}")));
}

TEST_P(DeviceTest, AGivenUpAccountIsToldWhatWasLeft) {
  machine()->CloseGate("held");
  const Tensor x = ToDevice(Numbers(10));
  ASSERT_TRUE(WaitForWork().ok());  // else what is left begins with the copy's callback
  Increment(stream(StreamKind::kCompute), x, x, "held");
  const RefPtr<DeviceWork> work = work_;
  std::thread impatient([work] { work->GiveUp(); });
  const Status status = WaitForWork();
  impatient.join();
  EXPECT_TRUE(errors::IsCancelled(status)) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("{{node held}}"));
  machine()->OpenGate("held");
  ASSERT_TRUE(device()->Sync().ok());
  EXPECT_EQ(work->Pending(), "");
}

TEST_P(DeviceTest, AHostThatTouchesDeviceMemoryDies) {
  const Tensor x = ToDevice(Numbers(10));
  ASSERT_TRUE(WaitForWork().ok());
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(std::memset(x.raw_data(), 0, 4), "");
  EXPECT_DEATH(
      {
        const volatile float first = *static_cast<const float*>(x.raw_data());
        std::exit(static_cast<int>(first));
      },
      "");
}

TEST_P(DeviceTest, GoesAwayWithWorkInItsQueues) {
  machine()->CloseGate("held");
  const RefPtr<DeviceWork> work = work_;
  {
    const Tensor x = ToDevice(Numbers(10));
    Increment(stream(StreamKind::kCompute), x, x, "held");
    CopyToHost(accelerator(), x, work_.get(), "out",
               [](const Status& status, const Tensor&) { EXPECT_FALSE(status.ok()); });
  }
  ASSERT_TRUE(machine()->WaitUntilSomethingStands());
  devices_.clear();
  task_.reset();
  EXPECT_EQ(work->Pending(), "");
  EXPECT_THAT(work->error().ToString(), HasSubstr("gone away"));
}

TEST(TaskDevicesTest, RefusesNumbersThatMakeNoSense) {
  for (const int count : {-1, 1025}) {
    EXPECT_TRUE(errors::IsInvalidArgument(
        TaskDevices::Open({FakeDeviceFactory()}, kTask, {{"FAKE", count}}).status()));
    EXPECT_TRUE(errors::IsInvalidArgument(
        TaskDevices::Open({FakeDeviceFactory()}, kTask, {{"CPU", count}}).status()));
  }
}

TEST(TaskDevicesTest, HasNoAcceleratorUnlessItIsAskedFor) {
  const auto task = TaskDevices::Open({FakeDeviceFactory()}, kTask, {{"GPU", 2}});
  ASSERT_TRUE(task.ok()) << task.status();
  const auto devices = (*task)->MakeDevices(nullptr);
  ASSERT_TRUE(devices.ok());
  ASSERT_EQ(devices->size(), 1u);
  EXPECT_EQ(AcceleratorOf((*devices)[0].device.get()), nullptr);
}

}  // namespace
}  // namespace millrace::testing
