// SPDX-License-Identifier: Apache-2.0
#include "device/fake/fake_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/fake/fake_activity.h"
#include "device/fake/fake_memory.h"
#include "device/fake/fake_recorder.h"
#include "device/host_threads.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kStandLimit(30);
constexpr std::chrono::minutes kSyncLimit(1);

class FakeEvent final : public Event {
 public:
  bool HasHappened() const override { return happened_.load(std::memory_order_acquire); }

  void Happen() {
    std::vector<std::function<void()>> waiters;
    {
      MutexLock lock(&mu_);
      happened_.store(true, std::memory_order_release);
      waiters.swap(waiters_);
    }
    for (const auto& wake : waiters) wake();
  }
  // At once if it has.
  void OnHappened(std::function<void()> wake) {
    {
      MutexLock lock(&mu_);
      if (!HasHappened()) {
        waiters_.push_back(std::move(wake));
        return;
      }
    }
    wake();
  }

 private:
  std::atomic<bool> happened_{false};
  Mutex mu_;
  std::vector<std::function<void()>> waiters_ ABSL_GUARDED_BY(mu_);
};

struct Item {
  enum class Kind { kRun, kCopy, kRecord, kWait, kCallback };
  Kind kind = Kind::kRun;
  RefPtr<DeviceWork> work;  // may be null
  int64_t id = 0;           // in the work
  int stream = 0;
  DeviceActivity::Kind activity = DeviceActivity::Kind::kKernel;
  int64_t bytes = 0;  // of a copy
  std::string node;
  bool even_after_error = false;
  std::function<Status()> run;
  std::function<void(const Status&)> callback;
  RefPtr<FakeEvent> event;
  bool has_time = false;
  Clock::time_point not_before;

  bool computes() const { return kind == Kind::kRun || kind == Kind::kCopy; }
};

class Machine;

class FakeStream final : public Stream {
 public:
  void Enqueue(Operation operation) override;
  void EnqueueCopy(RefPtr<DeviceWork> work, std::string_view node, void* to, const void* from,
                   std::size_t bytes, bool even_after_error) override;
  RefPtr<Event> Record() override;
  void Wait(RefPtr<Event> event) override;
  void EnqueueCallback(RefPtr<DeviceWork> work, std::string_view node,
                       std::function<void(const Status&)> fn) override;

  // What records in this thread; it is told of `obstacle`, unless that is "".
  FakeRecorder* Recorder(const char* obstacle) const;

  Machine* machine = nullptr;
  int index = 0;
};

// Threads share it; whoever made it calls Stop.
class Machine final : public FakeMachine,
                      public RecordingAccelerator,
                      public ActivityRecorder,
                      public std::enable_shared_from_this<Machine> {
 public:
  Machine(std::string name, const FakeDeviceOptions& options, std::shared_ptr<FakeMemory> memory)
      : name_(std::move(name)),
        options_(options),
        memory_(std::move(memory)),
        hosts_([this] { Wake(); }),
        random_(options.jitter_seed) {
    for (int i = 0; i < kNumStreamKinds; ++i) {
      streams_[i].machine = this;
      streams_[i].index = i;
    }
    AddDeviceMemory(memory_->begin(), memory_->size(), this);
    if (options.jitter_seed != 0) {
      memory_->SetOnNew([this](void* data, std::size_t bytes) { FillWithGarbage(data, bytes); });
    }
  }
  ~Machine() override { RemoveDeviceMemory(memory_->begin()); }

  void Start() {
    MutexLock lock(&mu_);
    thread_ = std::thread([self = shared_from_this()] { self->RunDevice(); });
  }

  // What is queued is dropped; what runs, ends.
  void Stop() {
    std::thread thread;
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      changed_.SignalAll();
      thread.swap(thread_);
    }
    if (thread.joinable()) {
      thread.get_id() == std::this_thread::get_id() ? thread.detach() : thread.join();
    }
    hosts_.Stop();
  }

  const std::string& name() const override { return name_; }
  Stream* stream(StreamKind kind) override { return &streams_[static_cast<int>(kind)]; }
  Allocator* allocator() override { return memory_.get(); }
  Allocator* staging_allocator() override { return HostAllocator(); }

  void Post(std::function<void()> fn) override { hosts_.Post(std::move(fn), shared_from_this()); }

  StatusOr<std::unique_ptr<OperationRecorder>> NewRecorder(Allocator*) override {
    return std::make_unique<FakeRecorder>(this);
  }
  bool IsRecording() const override { return FakeRecorder::Current(this) != nullptr; }
  StatusOr<std::unique_ptr<ActivityRecording>> RecordActivities(RefPtr<DeviceWork> work) override {
    return activities_.Record(std::move(work));
  }

  void CloseGate(std::string_view node) override {
    MutexLock lock(&mu_);
    gates_.insert(std::string(node));
  }
  void OpenGate(std::string_view node) override {
    MutexLock lock(&mu_);
    gates_.erase(std::string(node));
    changed_.SignalAll();
  }
  bool WaitUntilSomethingStands() override {
    const Clock::time_point limit = Clock::now() + kStandLimit;
    MutexLock lock(&mu_);
    while (!stands_) {
      if (!changed_.WaitUntil(&mu_, limit)) return stands_;
    }
    return true;
  }
  void FailNext(std::string_view node, const Status& status, int times) override {
    MutexLock lock(&mu_);
    faults_[std::string(node)] = {status, times};
  }
  void FailNextCopies(const Status& status, int times) override {
    MutexLock lock(&mu_);
    copy_fault_ = {status, times};
  }
  void FailNextAllocations(int times) override { memory_->FailNext(times); }
  void FailNextRecordings(const Status& status, int times) override {
    activities_.FailNext(status, times);
  }
  void SetDelay(std::chrono::microseconds delay) override {
    MutexLock lock(&mu_);
    delay_ = delay;
  }

  Status Synchronize(std::chrono::milliseconds limit) override {
    const Clock::time_point deadline = Clock::now() + limit;
    MutexLock lock(&mu_);
    while (!IsIdle()) {
      if (!changed_.WaitUntil(&mu_, deadline) && !IsIdle()) {
        return errors::DeadlineExceeded(name_, " has work after ", limit.count(), " ms");
      }
    }
    return OkStatus();
  }
  int64_t num_operations() const override {
    MutexLock lock(&mu_);
    return num_operations_;
  }

  Device* twin() override { return twin_.get(); }
  void MakeTwin(ThreadPool* intra_op_pool) {
    MutexLock lock(&mu_);
    if (twin_ != nullptr) return;
    twin_ =
        NewCpuDevice("/job:fake/replica:0/task:0/device:CPU:0", 1, intra_op_pool, &twin_resources_);
  }

  void Add(int stream, Item item) {
    item.stream = stream;
    if (item.work) item.id = item.work->Begin(this, item.node);
    {
      MutexLock lock(&mu_);
      if (!stopping_) {
        queues_[stream].push_back(std::move(item));
        changed_.SignalAll();
        return;
      }
    }
    Drop(std::move(item));
  }

  // Has the device's thread look again.
  void Wake() {
    MutexLock lock(&mu_);
    changed_.SignalAll();
  }

 private:
  struct Fault {
    Status status;
    int times = 0;
  };

  void FillWithGarbage(void* data, std::size_t bytes) {
    Item item;
    item.run = [data, bytes] {
      std::memset(FakeAlias(data), 0xa5, bytes);
      return OkStatus();
    };
    item.even_after_error = true;
    Add(static_cast<int>(StreamKind::kCompute), std::move(item));
  }

  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const auto& queue : queues_) {
      if (!queue.empty()) return false;
    }
    return !running_ && hosts_.IsIdle();
  }

  bool IsShut(const Item& item) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return item.computes() && item.work && !gates_.empty() &&
           (gates_.contains("") || gates_.contains(item.node));
  }

  // The stream whose first item may run now, -1 if none; then *until is when to look again.
  int Choose(Clock::time_point* until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const Clock::time_point now = Clock::now();
    const bool jitters = options_.jitter_seed != 0;
    int ready[kNumStreamKinds];
    int num_ready = 0;
    bool stands = false;
    for (int i = 0; i < kNumStreamKinds; ++i) {
      const int s = (last_ + 1 + i) % kNumStreamKinds;
      if (queues_[s].empty()) continue;
      Item& item = queues_[s].front();
      if (!item.has_time) {
        item.has_time = true;
        item.not_before = now;
        if (item.computes() || item.kind == Item::Kind::kCallback) {
          item.not_before += delay_;
          if (jitters && options_.max_delay.count() > 0 && random_() % 4 == 0) {
            item.not_before += std::chrono::microseconds(random_() % options_.max_delay.count());
          }
        }
      }
      if (item.kind == Item::Kind::kWait && !item.event->HasHappened()) continue;
      if (IsShut(item)) {
        stands = true;
        continue;
      }
      if (item.not_before > now) {
        *until = std::min(*until, item.not_before);
        continue;
      }
      ready[num_ready++] = s;
    }
    if (stands != stands_) {
      stands_ = stands;
      changed_.SignalAll();
    }
    if (num_ready == 0) return -1;
    return ready[jitters ? random_() % num_ready : 0];
  }

  void RunDevice() {
    mu_.Lock();
    while (!stopping_) {
      Clock::time_point until = Clock::now() + std::chrono::seconds(1);
      const int s = Choose(&until);
      if (s < 0) {
        changed_.WaitUntil(&mu_, until);
        continue;
      }
      last_ = s;
      Item item = std::move(queues_[s].front());
      queues_[s].pop_front();
      running_ = true;
      const Status fault = TakeFault(item);
      mu_.Unlock();
      RunItem(std::move(item), fault);
      mu_.Lock();
      running_ = false;
      changed_.SignalAll();
    }
    std::array<std::deque<Item>, kNumStreamKinds> dropped;
    dropped.swap(queues_);
    mu_.Unlock();
    for (auto& queue : dropped) {
      for (Item& item : queue) Drop(std::move(item));
    }
  }

  Status TakeFault(const Item& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (item.kind == Item::Kind::kCopy && copy_fault_.times > 0) {
      --copy_fault_.times;
      return copy_fault_.status;
    }
    if (item.kind != Item::Kind::kRun || !item.work) return OkStatus();
    ++num_operations_;
    for (const std::string& key : {item.node, std::string()}) {
      const auto it = faults_.find(key);
      if (it == faults_.end() || it->second.times == 0) continue;
      --it->second.times;
      return it->second.status;
    }
    return OkStatus();
  }

  void RunItem(Item item, const Status& fault) {
    switch (item.kind) {
      case Item::Kind::kWait:
        return;
      case Item::Kind::kRecord:
        return item.event->Happen();
      case Item::Kind::kCallback:
        return CallBack(std::move(item), OkStatus());
      case Item::Kind::kRun:
      case Item::Kind::kCopy:
        break;
    }
    const bool skip = item.work && item.work->failed() && !item.even_after_error;
    Status status = fault;
    if (status.ok() && !skip) {
      const int64_t begin = activities_.any() ? WallNanos() : 0;
      status = item.run();
      if (begin != 0) Note(item, begin);
    }
    item.run = nullptr;  // what it owns is gone before the work knows
    if (item.work) item.work->End(item.id, this, status);
  }

  void Note(const Item& item, int64_t begin) {
    const auto kind = static_cast<StreamKind>(item.stream);
    activities_.Add(item.work.get(),
                    {item.activity, "", item.node, item.stream, std::string(StreamPurpose(kind)),
                     begin, std::max(begin, WallNanos()), item.bytes});
  }

  void CallBack(Item item, const Status& lost) {
    Post([self = shared_from_this(), item = std::make_shared<Item>(std::move(item)), lost] {
      Status status = lost;
      if (status.ok() && item->work) status = item->work->error();
      item->callback(status);
      item->callback = nullptr;
      if (item->work) item->work->End(item->id, self.get(), OkStatus());
    });
  }

  // The machine goes away before the item's turn came.
  void Drop(Item item) {
    if (item.kind == Item::Kind::kRecord) item.event->Happen();
    if (item.kind == Item::Kind::kCallback) {
      return CallBack(std::move(item), errors::Cancelled(name_, " has gone away"));
    }
    if (!item.computes()) return;
    item.run = nullptr;
    if (item.work) {
      item.work->End(item.id, this, errors::Cancelled(name_, " has gone away"));
    }
  }

  const std::string name_;
  const FakeDeviceOptions options_;
  const std::shared_ptr<FakeMemory> memory_;
  HostThreads hosts_;
  std::array<FakeStream, kNumStreamKinds> streams_;
  FakeActivities activities_;
  ResourceManager twin_resources_;
  std::unique_ptr<Device> twin_;  // constant once made

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::array<std::deque<Item>, kNumStreamKinds> queues_ ABSL_GUARDED_BY(mu_);
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool stands_ ABSL_GUARDED_BY(mu_) = false;
  int last_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t num_operations_ ABSL_GUARDED_BY(mu_) = 0;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
  std::chrono::microseconds delay_ ABSL_GUARDED_BY(mu_){0};
  std::set<std::string> gates_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Fault> faults_ ABSL_GUARDED_BY(mu_);
  Fault copy_fault_ ABSL_GUARDED_BY(mu_);
  std::thread thread_ ABSL_GUARDED_BY(mu_);
};

FakeRecorder* FakeStream::Recorder(const char* obstacle) const {
  FakeRecorder* const recorder = FakeRecorder::Current(machine);
  if (recorder == nullptr) return nullptr;
  const bool is_compute = index == static_cast<int>(StreamKind::kCompute);
  if (!is_compute) obstacle = "what another stream does";
  if (*obstacle != '\0') recorder->Refuse(obstacle);
  return is_compute ? recorder : nullptr;
}

void FakeStream::Enqueue(Operation operation) {
  if (FakeRecorder* const recorder = Recorder("")) return recorder->Record(std::move(operation));
  Item item;
  item.work = std::move(operation.work);
  item.node = std::string(operation.node);
  item.even_after_error = operation.even_after_error;
  item.run = std::move(operation.run);
  machine->Add(index, std::move(item));
}

void FakeStream::EnqueueCopy(RefPtr<DeviceWork> work, std::string_view node, void* to,
                             const void* from, std::size_t bytes, bool even_after_error) {
  auto run = [to, from, bytes] {
    std::memcpy(FakeAlias(to), FakeAlias(from), bytes);
    return OkStatus();
  };
  if (FakeRecorder* const recorder = Recorder("")) {
    return recorder->Record({nullptr, node, std::move(run), even_after_error});
  }
  Item item;
  item.kind = Item::Kind::kCopy;
  item.activity = CopyKind(to, from);
  item.bytes = static_cast<int64_t>(bytes);
  item.work = std::move(work);
  item.node = std::string(node);
  item.even_after_error = even_after_error;
  item.run = std::move(run);
  machine->Add(index, std::move(item));
}

RefPtr<Event> FakeStream::Record() {
  Recorder("an event");
  Item item;
  item.kind = Item::Kind::kRecord;
  item.event = MakeRef<FakeEvent>();
  RefPtr<FakeEvent> event = item.event;
  machine->Add(index, std::move(item));
  return RefPtr<Event>(std::move(event));
}

void FakeStream::Wait(RefPtr<Event> event) {
  Recorder("a wait for an event");
  Item item;
  item.kind = Item::Kind::kWait;
  item.event = RefPtr<FakeEvent>(static_cast<FakeEvent*>(event.release()));
  const RefPtr<FakeEvent> awaited = item.event;
  machine->Add(index, std::move(item));
  awaited->OnHappened([machine = machine->shared_from_this()] { machine->Wake(); });
}

void FakeStream::EnqueueCallback(RefPtr<DeviceWork> work, std::string_view node,
                                 std::function<void(const Status&)> fn) {
  Recorder("a callback");
  Item item;
  item.kind = Item::Kind::kCallback;
  item.work = std::move(work);
  item.node = std::string(node);
  item.callback = std::move(fn);
  machine->Add(index, std::move(item));
}

// ---- devices ----

struct Machines {
  Mutex mu;
  FakeDeviceOptions options ABSL_GUARDED_BY(mu);
  std::map<std::string, std::weak_ptr<Machine>> latest ABSL_GUARDED_BY(mu);
};

Machines& AllMachines() {
  static auto* const machines = new Machines;
  return *machines;
}

// Stops the machine with the last device and the task's own share.
struct MachineOwner {
  explicit MachineOwner(std::shared_ptr<Machine> owned) : machine(std::move(owned)) {}
  ~MachineOwner() { machine->Stop(); }
  const std::shared_ptr<Machine> machine;
};

class FakeDevice final : public AcceleratorDevice {
 public:
  FakeDevice(DeviceAttributes attributes, ThreadPool* pool, ResourceManager* resources,
             std::shared_ptr<MachineOwner> owner)
      : AcceleratorDevice(std::move(attributes), pool, resources), owner_(std::move(owner)) {}
  Allocator* allocator() const override { return owner_->machine->allocator(); }
  Accelerator* accelerator() const override { return owner_->machine.get(); }
  Status Sync() override { return owner_->machine->Synchronize(kSyncLimit); }

 private:
  const std::shared_ptr<MachineOwner> owner_;
};

class TaskMachines final : public DeviceFactory::Machines {
 public:
  Status Open(const std::string& task, int count) {
    auto& all = AllMachines();
    MutexLock lock(&all.mu);
    for (int i = 0; i < count; ++i) {
      const std::string name = StrCat(task, "/device:FAKE:", i);
      FakeDeviceOptions options = all.options;
      if (options.jitter_seed != 0) options.jitter_seed += i;
      MR_ASSIGN_OR_RETURN(std::shared_ptr<FakeMemory> memory,
                          FakeMemory::Map(StrCat("FAKE_", i, "_memory"), options.memory_limit));
      auto machine = std::make_shared<Machine>(name, options, std::move(memory));
      machine->Start();
      all.latest[name] = machine;
      owners_.push_back(std::make_shared<MachineOwner>(std::move(machine)));
    }
    return OkStatus();
  }

  StatusOr<std::unique_ptr<Device>> NewDevice(int index, std::string name, uint64_t incarnation,
                                              ThreadPool* intra_op_pool,
                                              ResourceManager* resources) override {
    const std::shared_ptr<MachineOwner>& owner = owners_[index];
    owner->machine->MakeTwin(intra_op_pool);
    DeviceAttributes attributes;
    attributes.name = std::move(name);
    attributes.device_type = "FAKE";
    attributes.memory_limit = owner->machine->allocator()->stats().bytes_limit;
    attributes.incarnation = incarnation;
    attributes.physical_description = "an accelerator simulated by the CPU";
    return std::make_unique<FakeDevice>(std::move(attributes), intra_op_pool, resources, owner);
  }

 private:
  std::vector<std::shared_ptr<MachineOwner>> owners_;
};

class Factory final : public DeviceFactory {
 public:
  std::string_view type() const override { return "FAKE"; }
  StatusOr<std::unique_ptr<Machines>> Open(const std::string& task, int count) const override {
    auto machines = std::make_unique<TaskMachines>();
    MR_RETURN_IF_ERROR(machines->Open(task, count));
    return machines;
  }
};

}  // namespace

const DeviceFactory* FakeDeviceFactory() {
  static const auto* const factory = new Factory;
  return factory;
}

void SetFakeDeviceOptions(const FakeDeviceOptions& options) {
  Machines& all = AllMachines();
  MutexLock lock(&all.mu);
  all.options = options;
}

std::shared_ptr<FakeMachine> FakeMachine::Find(std::string_view device_name) {
  Machines& all = AllMachines();
  MutexLock lock(&all.mu);
  const auto it = all.latest.find(std::string(device_name));
  return it == all.latest.end() ? nullptr : it->second.lock();
}

}  // namespace millrace
