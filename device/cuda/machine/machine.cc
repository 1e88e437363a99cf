// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/machine/machine.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/activity.h"
#include "device/cuda/driver/context.h"
#include "device/cuda/machine/in_flight.h"
#include "device/cuda/machine/issue_scope.h"
#include "device/cuda/machine/lost_machine.h"
#include "device/cuda/machine/machine_memory.h"
#include "device/cuda/machine/recorder.h"
#include "device/cuda/machine/wait_pace.h"
#include "device/cuda/trace/cuda_activity.h"
#include "device/host_threads.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kStagingBlock = std::size_t{32} << 20;  // bytes of a copy that are staged
constexpr std::chrono::milliseconds kWaitForMemory(500);
constexpr int kComputeIndex = static_cast<int>(StreamKind::kCompute);

class Machine;

class CudaStream final : public Stream {
 public:
  void Enqueue(Operation operation) override;
  void EnqueueCopy(RefPtr<DeviceWork> work, std::string_view node, void* to, const void* from,
                   std::size_t bytes, bool even_after_error) override;
  RefPtr<Event> Record() override;
  void Wait(RefPtr<Event> event) override;
  void EnqueueCallback(RefPtr<DeviceWork> work, std::string_view node,
                       std::function<void(const Status&)> fn) override;

  Machine* machine = nullptr;
  int index = 0;
};

thread_local bool is_watcher = false;
// Whether this thread belongs to a machine, and may not wait for one.
bool IsMachineThread() { return is_watcher || HostThreads::IsCurrent(); }

// Threads share it; whoever made it calls Stop.
class Machine final : public CudaMachineImpl,
                      public RecordingAccelerator,
                      public ActivityRecorder,
                      public std::enable_shared_from_this<Machine> {
 public:
  Machine(CudaMachineOptions options, std::shared_ptr<CudaContext> context,
          CudaProperties properties)
      : options_(std::move(options)),
        context_(std::move(context)),
        driver_(options_.driver),
        properties_(std::move(properties)),
        events_(std::make_shared<CudaEventPool>(context_)),
        library_handles_(options_.handles),
        hosts_([this] { Changed(); }),
        in_flight_(driver_, events_) {
    for (int i = 0; i < kNumStreamKinds; ++i) {
      streams_[i].machine = this;
      streams_[i].index = i;
    }
  }

  Status Open() {
    MR_RETURN_IF_ERROR(MakeCurrent());
    MR_ASSIGN_OR_RETURN(memory_, CudaMachineMemory::New(options_, properties_, context_, this,
                                                        [this] { WaitForMemory(); }));
    for (int i = 0; i < kNumStreamKinds; ++i) {
      // Copies go before kernels, which wait for them.
      const bool is_copy = i != static_cast<int>(StreamKind::kCompute);
      MR_ASSIGN_OR_RETURN(handles_[i], driver_->NewStream(/*high_priority=*/is_copy));
    }
    MutexLock lock(&mu_);
    watcher_ = std::thread([self = shared_from_this()] { self->Watch(); });
    return OkStatus();
  }

  // Waits for what runs. Afterwards nothing does.
  void Stop() {
    const Status idle = Synchronize(options_.stop_limit);
    if (!idle.ok()) {
      Fail(errors::Cancelled(name(), " has gone away before its work was done")).IgnoreError();
    }
    std::thread watcher;
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      changed_.SignalAll();
      watcher.swap(watcher_);
    }
    if (watcher.joinable()) {
      watcher.get_id() == std::this_thread::get_id() ? watcher.detach() : watcher.join();
    }
    hosts_.Stop();
    if (!MakeCurrent().ok()) return;
    library_handles_.Clear(nullptr);
    for (void*& stream : handles_) {
      if (stream != nullptr) driver_->DeleteStream(std::exchange(stream, nullptr));
    }
    MutexLock lock(&mu_);
    if (capture_stream_ != nullptr) {
      driver_->DeleteStream(std::exchange(capture_stream_, nullptr));
    }
  }

  // ---- Accelerator, CudaMachine ----

  const std::string& name() const override { return options_.name; }
  Stream* stream(StreamKind kind) override { return &streams_[static_cast<int>(kind)]; }
  Allocator* allocator() override { return memory_->device().get(); }
  Allocator* staging_allocator() override { return memory_->staging(); }
  const CudaProperties& properties() const override { return properties_; }
  const CudaMathOptions& math() const override { return options_.math; }
  CudaDriver* driver() override { return driver_; }
  void* compute_stream() override {
    if (const CudaRecorder* const recorder = CudaRecorder::Current(this)) return recorder->stream();
    return handles_[kComputeIndex];
  }
  Status MakeCurrent() override { return context_->MakeCurrent(); }
  StatusOr<void*> cublaslt() override { return Lease(CudaHandles::kCublasLt); }
  StatusOr<void*> cublas() override { return Lease(CudaHandles::kCublas); }
  StatusOr<void*> cudnn() override { return Lease(CudaHandles::kCudnn); }
  void* context() const override { return context_->handle(); }
  const std::shared_ptr<RegionAllocator>& memory() const override { return memory_->device(); }
  const std::shared_ptr<RegionAllocator>& pinned() const override { return memory_->pinned(); }

  StatusOr<void*> Workspace(std::size_t bytes) override {
    IssueScope* const scope = IssueScope::Current(this);
    if (scope == nullptr) return OutsideOfRun();
    const CudaRecorder* const recorder = CudaRecorder::Current(this);
    Allocator* const from = recorder != nullptr ? recorder->scratch() : memory().get();
    RefPtr<Buffer> block = from->Allocate(bytes);
    if (!block) {
      return errors::ResourceExhausted("no room for a workspace of ",
                                       HumanBytes(static_cast<int64_t>(bytes)), ": ",
                                       memory()->Report());
    }
    void* const data = block->data();
    scope->Keep(std::move(block));
    return data;
  }

  StatusOr<std::unique_ptr<OperationRecorder>> NewRecorder(Allocator* scratch) override {
    if (options_.blocking) {
      return errors::FailedPrecondition("nothing is recorded where each operation is waited for");
    }
    MR_RETURN_IF_ERROR(MakeCurrent());
    void* stream = nullptr;
    {
      MutexLock lock(&mu_);
      if (stopping_ || !failure_.ok()) return failure_.ok() ? Gone() : failure_;
      if (records_) return errors::Unavailable("somebody else records at ", name());
      if (capture_stream_ == nullptr) {
        MR_ASSIGN_OR_RETURN(capture_stream_, driver_->NewStream(/*high_priority=*/false));
      }
      records_ = true;
      stream = capture_stream_;
    }
    const auto gone = [this] {
      MutexLock lock(&mu_);
      records_ = false;
    };
    return CudaRecorder::New(
        {this, context_, &library_handles_, stream, handles_[kComputeIndex], scratch, gone});
  }

  bool IsRecording() const override { return CudaRecorder::Current(this) != nullptr; }

  StatusOr<std::unique_ptr<ActivityRecording>> RecordActivities(RefPtr<DeviceWork> work) override {
    if (options_.activities == nullptr) return errors::Unimplemented("nothing here records GPUs");
    return options_.activities->Record(this, std::move(work));
  }

  void Post(std::function<void()> fn) override { hosts_.Post(std::move(fn), shared_from_this()); }

  Status Synchronize(std::chrono::milliseconds limit) override {
    const Clock::time_point deadline = Clock::now() + limit;
    // A thread of the machine cannot wait for itself.
    const int busy = IsMachineThread() ? 1 : 0;
    MutexLock lock(&mu_);
    while (!IsIdle(busy)) {
      if (!changed_.WaitUntil(&mu_, deadline) && !IsIdle(busy)) {
        return errors::DeadlineExceeded(name(), " has work after ", limit.count(), " ms");
      }
    }
    return failure_;
  }
  Status failure() const override {
    MutexLock lock(&mu_);
    return failure_;
  }

  // ---- for streams ----

  void Run(int s, Stream::Operation operation) {
    if (CudaRecorder* const recorder = Recorder(s, "")) {
      return recorder->Record(std::move(operation));
    }
    if (IsSkipped(operation.work.get(), operation.even_after_error)) return;
    InFlightItem item;
    Status status = Begin(std::move(operation.work), operation.node, &item);
    if (status.ok() || operation.even_after_error) {
      const IssueScope scope(this, &library_handles_, handles_[s]);
      const CudaActivityScope traced(options_.activities, this, item.work.get(), item.node,
                                     Kind(s));
      status.Update(operation.run());
    }
    item.run = std::move(operation.run);
    Add(s, std::move(item), operation.node, std::move(status));
  }

  void Copy(int s, RefPtr<DeviceWork> work, std::string_view node, void* to, const void* from,
            std::size_t bytes, bool even_after_error) {
    if (CudaRecorder* const recorder = Recorder(s, "")) {
      return recorder->RecordCopy(to, from, bytes);
    }
    if (IsSkipped(work.get(), even_after_error)) return;
    InFlightItem item;
    Status status = Begin(std::move(work), node, &item);
    if (status.ok()) {
      const CudaActivityScope traced(options_.activities, this, item.work.get(), item.node,
                                     Kind(s));
      status = IssueCopy(s, to, from, bytes, &item);
    }
    Add(s, std::move(item), node, std::move(status));
  }

  void CallBackLater(int s, RefPtr<DeviceWork> work, std::string_view node,
                     std::function<void(const Status&)> fn) {
    Recorder(s, "a callback");
    InFlightItem item;
    Status status = Begin(std::move(work), node, &item);
    NoLongerIssuing(node);
    item.callback = std::move(fn);
    if (status.ok()) {
      MutexLock lock(&mu_);
      if (failure_.ok() && !stopping_) {
        status = in_flight_.AddMarked(s, handles_[s], &item);
        if (status.ok()) {
          WakeWatcher();
          return;
        }
      } else {
        status = failure_.ok() ? Gone() : failure_;
      }
    }
    const Status lost = Diagnose(std::move(status));
    CallBack(std::move(item), lost);
  }

  RefPtr<Event> RecordEvent(int s) {
    Recorder(s, "an event");
    void* event = nullptr;
    Status status = MakeCurrent();
    if (status.ok()) {
      StatusOr<void*> made = events_->Get();
      status = made.status();
      if (status.ok()) {
        event = *made;
        status = driver_->Record(event, handles_[s]);
      }
    }
    if (!status.ok()) {
      if (event != nullptr) events_->Put(std::exchange(event, nullptr));
      Diagnose(std::move(status)).IgnoreError();
    }
    return RefPtr<Event>(new CudaEvent(events_, event));
  }

  void WaitFor(int s, const CudaEvent& event) {
    Recorder(s, "a wait for an event");
    if (event.handle() == nullptr) return;
    Status status = MakeCurrent();
    status.Update(driver_->Wait(handles_[s], event.handle()));
    if (!status.ok()) Diagnose(std::move(status)).IgnoreError();
  }

 private:
  static Status OutsideOfRun() {
    return errors::Internal("handles and workspaces are for operations that are being issued");
  }
  Status Gone() const { return errors::Cancelled(name(), " has gone away"); }
  static StreamKind Kind(int s) { return static_cast<StreamKind>(s); }
  static bool IsSkipped(const DeviceWork* work, bool even_after_error) {
    return work != nullptr && work->failed() && !even_after_error;
  }

  // What records in this thread; it is told of `obstacle`, unless that is "".
  CudaRecorder* Recorder(int s, const char* obstacle) const {
    CudaRecorder* const recorder = CudaRecorder::Current(this);
    if (recorder == nullptr) return nullptr;
    if (s != kComputeIndex) obstacle = "what another stream does";
    if (*obstacle != '\0') recorder->Refuse(obstacle);
    return s == kComputeIndex ? recorder : nullptr;
  }

  // On the account; the error if nothing can be issued. Until NoLongerIssuing of the same `node`,
  // whose characters stay where they are: the device may fail in what is issued before it is in
  // flight.
  Status Begin(RefPtr<DeviceWork> work, std::string_view node, InFlightItem* item) {
    item->work = std::move(work);
    item->node = std::string(node);
    if (item->work) item->id = item->work->Begin(this, item->node);
    memory()->NameRecent(item->node);
    {
      MutexLock lock(&issuing_mu_);
      issuing_.push_back(node);
    }
    if (has_failed_.load(std::memory_order_acquire)) return failure();
    return MakeCurrent();
  }

  Status IssueCopy(int s, void* to, const void* from, std::size_t bytes, InFlightItem* item) {
    void* const stream = handles_[s];
    const bool stages =
        AcceleratorOf(to) != nullptr && AcceleratorOf(from) == nullptr && !pinned()->Contains(from);
    if (!stages) return bytes == 0 ? OkStatus() : driver_->Copy(to, from, bytes, stream);
    // Through pinned memory: a copy out of other memory would keep this thread waiting for the
    // stream.
    for (std::size_t at = 0; at < bytes; at += kStagingBlock) {
      const std::size_t size = std::min(kStagingBlock, bytes - at);
      const char* source = static_cast<const char*>(from) + at;
      if (RefPtr<Buffer> block = pinned()->Allocate(size); block) {
        std::memcpy(block->data(), source, size);
        source = static_cast<const char*>(block->data());
        item->staging.push_back(std::move(block));
      }
      MR_RETURN_IF_ERROR(driver_->Copy(static_cast<char*>(to) + at, source, size, stream));
    }
    return OkStatus();
  }

  // What was issued, with what came of it.
  void Add(int s, InFlightItem item, std::string_view node, Status status) {
    if (status.ok() && options_.blocking) {
      status = driver_->Synchronize(handles_[s]);
      if (status.ok()) {
        NoLongerIssuing(node);
        return End(std::move(item), OkStatus());
      }
    }
    RefPtr<DeviceWork> work;
    const int64_t id = item.id;
    if (!status.ok()) {
      status = Diagnose(std::move(status));
      work = std::move(item.work);  // fails now; what was issued of it may still run
      item.work = nullptr;
    }
    bool lost = false;
    {
      MutexLock lock(&mu_);
      lost = !failure_.ok();
      if (!lost) {
        in_flight_.Add(s, std::move(item));
        WakeWatcher();
      }
      NoLongerIssuing(node);  // with the lock: Fail finds it here or there
    }
    if (lost && item.work) {
      work = std::move(item.work);
      status = failure();
    }
    if (lost) End(std::move(item), OkStatus());
    if (work) work->End(id, this, status);
  }

  void NoLongerIssuing(std::string_view node) {
    MutexLock lock(&issuing_mu_);
    const auto found = std::find_if(issuing_.begin(), issuing_.end(), [node](std::string_view one) {
      return one.data() == node.data();
    });
    if (found == issuing_.end()) return;
    *found = issuing_.back();
    issuing_.pop_back();
  }

  // If the context is lost, so is the machine: the error with all who may have caused it.
  Status Diagnose(Status status) {
    {
      MutexLock lock(&mu_);
      if (!failure_.ok()) return failure_;
    }
    if (!errors::IsInternal(status) || !IsContextLost()) return status;
    return Fail(status);
  }

  // Asks for something that works in any context that does.
  bool IsContextLost() {
    if (!MakeCurrent().ok()) return true;
    StatusOr<void*> event = events_->Get();
    if (!event.ok()) return true;
    const bool lost =
        !driver_->Record(*event, handles_[static_cast<int>(StreamKind::kPeer)]).ok() ||
        !driver_->Query(*event).ok();
    events_->Put(*event);
    return lost;
  }

  // Ends everything with the error.
  Status Fail(const Status& cause) {
    std::vector<InFlightItem> items;
    Status failure;
    {
      MutexLock lock(&mu_);
      if (!failure_.ok()) return failure_;
      std::vector<std::string> suspects;
      items = in_flight_.TakeAll();
      for (const InFlightItem& item : items) {
        const bool ran = options_.blocking || item.callback != nullptr;
        if (!ran && !item.node.empty()) suspects.push_back(item.node);
      }
      {
        MutexLock issuing_lock(&issuing_mu_);
        for (const std::string_view one : issuing_) {
          if (!one.empty()) suspects.emplace_back(one);
        }
      }
      failure_ = failure =
          LostMachine(cause, name(), properties_.name, suspects, options_.blocking);
      has_failed_.store(true, std::memory_order_release);
    }
    MR_LOG(kError, Message(failure));
    for (InFlightItem& item : items) End(std::move(item), failure);
    Changed();
    return failure;
  }

  void End(InFlightItem item, const Status& status) {
    if (item.callback != nullptr) return CallBack(std::move(item), status);
    item.run = nullptr;  // what it owns is gone before the work knows
    item.staging.clear();
    if (item.work) item.work->End(item.id, this, status);
  }

  void CallBack(InFlightItem item, const Status& lost) {
    Post([self = shared_from_this(), item = std::make_shared<InFlightItem>(std::move(item)), lost] {
      Status status = lost;
      if (status.ok() && item->work) status = item->work->error();
      item->callback(status);
      item->callback = nullptr;
      if (item->work) item->work->End(item->id, self.get(), OkStatus());
    });
  }

  StatusOr<void*> Lease(CudaHandles::Kind kind) {
    IssueScope* const scope = IssueScope::Current(this);
    return scope == nullptr ? OutsideOfRun() : scope->Handle(kind);
  }

  // What runs may hold memory until it ends, as copies to the host do.
  void WaitForMemory() {
    if (IsMachineThread()) return;
    Synchronize(kWaitForMemory).IgnoreError();
  }

  // But for `busy` threads.
  bool IsIdle(int busy) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return in_flight_.empty() && hosts_.num_pending() + (ending_ ? 1 : 0) <= busy;
  }

  void Changed() {
    MutexLock lock(&mu_);
    changed_.SignalAll();
  }

  // ---- the watcher ----

  void WakeWatcher() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (watcher_sleeps_) changed_.SignalAll();
  }

  void Watch() {
    is_watcher = true;
    Status status = MakeCurrent();
    WaitPace pace;
    Clock::time_point begin = Clock::now();
    std::vector<InFlightItem> ended;
    mu_.Lock();
    while (!stopping_) {
      if (in_flight_.empty()) {
        watcher_sleeps_ = true;
        changed_.Wait(&mu_);
        watcher_sleeps_ = false;
        begin = Clock::now();
        continue;
      }
      status.Update(in_flight_.Collect(handles_, &ended));
      if (ended.empty() && status.ok()) {
        mu_.Unlock();
        Rest(pace.SleepAt(Nanoseconds(Clock::now() - begin)));
        mu_.Lock();
        continue;
      }
      pace.Ended(Nanoseconds(Clock::now() - begin));
      ending_ = true;  // not idle until the works know
      mu_.Unlock();
      for (InFlightItem& item : ended) End(std::move(item), OkStatus());
      ended.clear();
      if (!status.ok()) Fail(status).IgnoreError();
      // What ended may have held the last share of another machine, whose end makes its own
      // context the thread's.
      status = MakeCurrent();
      begin = Clock::now();
      mu_.Lock();
      ending_ = false;
      changed_.SignalAll();
    }
    mu_.Unlock();
  }

  static int64_t Nanoseconds(Clock::duration duration) {
    return std::chrono::nanoseconds(duration).count();
  }
  static void Rest(int64_t nanoseconds) {
    if (nanoseconds == 0) return std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds));
  }

  const CudaMachineOptions options_;
  const std::shared_ptr<CudaContext> context_;
  CudaDriver* const driver_;
  const CudaProperties properties_;
  const std::shared_ptr<CudaEventPool> events_;
  CudaHandlePool library_handles_;
  HostThreads hosts_;
  std::unique_ptr<CudaMachineMemory> memory_;  // constant after Open
  std::array<CudaStream, kNumStreamKinds> streams_;
  std::array<void*, kNumStreamKinds> handles_{};  // CUstream; constant until Stop
  std::atomic<bool> has_failed_{false};

  mutable Mutex mu_;
  // After mu_, where both are held.
  Mutex issuing_mu_ ABSL_ACQUIRED_AFTER(mu_);
  std::vector<std::string_view> issuing_ ABSL_GUARDED_BY(issuing_mu_);  // nodes
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  Status failure_ ABSL_GUARDED_BY(mu_);
  InFlight in_flight_ ABSL_GUARDED_BY(mu_);
  void* capture_stream_ ABSL_GUARDED_BY(mu_) = nullptr;  // made for the first recording
  bool records_ ABSL_GUARDED_BY(mu_) = false;
  bool watcher_sleeps_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread watcher_ ABSL_GUARDED_BY(mu_);
};

void CudaStream::Enqueue(Operation operation) { machine->Run(index, std::move(operation)); }

void CudaStream::EnqueueCopy(RefPtr<DeviceWork> work, std::string_view node, void* to,
                             const void* from, std::size_t bytes, bool even_after_error) {
  machine->Copy(index, std::move(work), node, to, from, bytes, even_after_error);
}

RefPtr<Event> CudaStream::Record() { return machine->RecordEvent(index); }

void CudaStream::Wait(RefPtr<Event> event) {
  machine->WaitFor(index, static_cast<const CudaEvent&>(*event));
}

void CudaStream::EnqueueCallback(RefPtr<DeviceWork> work, std::string_view node,
                                 std::function<void(const Status&)> fn) {
  machine->CallBackLater(index, std::move(work), node, std::move(fn));
}

}  // namespace

StatusOr<std::shared_ptr<CudaMachineImpl>> CudaMachineImpl::Start(CudaMachineOptions options) {
  CudaDriver* const driver = options.driver;
  MR_ASSIGN_OR_RETURN(CudaProperties properties, driver->Properties(options.ordinal));
  MR_ASSIGN_OR_RETURN(std::shared_ptr<CudaContext> context,
                      CudaContext::Retain(driver, options.ordinal));
  auto machine =
      std::make_shared<Machine>(std::move(options), std::move(context), std::move(properties));
  // What stops the machine, with the last share that is not a thread's.
  std::shared_ptr<CudaMachineImpl> shared(machine.get(), [machine](CudaMachineImpl*) mutable {
    machine->Stop();
    machine.reset();  // weak shares keep this
  });
  MR_RETURN_IF_ERROR(machine->Open());
  return shared;
}

}  // namespace millrace
