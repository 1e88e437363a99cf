// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/simulated/simulated_driver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace millrace {
namespace {

struct Context {
  int ordinal = 0;
  int shares = 0;
  bool lost = false;
};

// One recording of an event. Who waits for it is not concerned with later ones.
struct Recording {
  bool happened = false;
};

struct SimEvent {
  Context* context = nullptr;
  std::shared_ptr<Recording> latest;  // null: never recorded
};

struct Op {
  enum class Kind { kRun, kFault, kRecord, kWait };
  Kind kind = Kind::kRun;
  std::function<void()> run;
  std::shared_ptr<Recording> recording;  // null: of nothing
};

struct SimGraph {
  std::vector<Op> ops;
};

struct SimStream {
  Context* context = nullptr;
  std::deque<Op> ops;
  bool running = false;
  bool capturing = false;
  SimGraph graph;  // of the capture
};

thread_local Context* current = nullptr;

Status Lost() {
  return errors::Internal("CUDA_ERROR_ILLEGAL_ADDRESS (700), an illegal memory access");
}

class Driver final : public SimulatedDriver {
 public:
  explicit Driver(SimulatedDriverOptions options) : options_(options), random_(options.seed) {
    contexts_.resize(options.num_devices);
    for (int i = 0; i < options.num_devices; ++i) contexts_[i].ordinal = i;
    used_.resize(options.num_devices, options.used_by_others);
    thread_ = std::thread([this] { RunDevices(); });
  }
  ~Driver() override {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      changed_.SignalAll();
    }
    thread_.join();
  }

  StatusOr<int> NumDevices() override { return options_.num_devices; }
  StatusOr<CudaProperties> Properties(int ordinal) override {
    CudaProperties found;
    found.ordinal = ordinal;
    found.name = "Simulated GPU";
    found.pci_bus_id = StrCat("0000:0", ordinal, ":00.0");
    found.compute_capability = 90;
    found.num_multiprocessors = 4;
    found.memory = options_.memory;
    return found;
  }
  StatusOr<void*> RetainContext(int ordinal) override {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(Called("cuDevicePrimaryCtxRetain"));
    ++contexts_[ordinal].shares;
    return &contexts_[ordinal];
  }
  void ReleaseContext(int ordinal) override {
    MutexLock lock(&mu_);
    if (--contexts_[ordinal].shares == 0) contexts_[ordinal].lost = false;
  }
  Status SetCurrent(void* context) override {
    current = static_cast<Context*>(context);
    return OkStatus();
  }
  Status EnablePeer(int, int, void*) override { return OkStatus(); }

  StatusOr<MemoryInfo> Memory() override {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CalledInContext("cuMemGetInfo"));
    return MemoryInfo{options_.memory - used_[current->ordinal], options_.memory};
  }
  StatusOr<void*> Allocate(std::size_t bytes) override {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CalledInContext("cuMemAlloc"));
    int64_t& used = used_[current->ordinal];
    if (used + static_cast<int64_t>(bytes) > options_.memory) {
      return errors::ResourceExhausted("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)");
    }
    used += static_cast<int64_t>(bytes);
    void* const memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    allocations_[memory] = {bytes, current->ordinal};
    return memory;
  }
  // Waits for the device, as the real one does.
  void Free(void* memory) override {
    MutexLock lock(&mu_);
    const auto found = allocations_.find(memory);
    WaitUntilIdle(&contexts_[found->second.second]);
    used_[found->second.second] -= static_cast<int64_t>(found->second.first);
    allocations_.erase(found);
    std::free(memory);
  }
  StatusOr<void*> AllocatePinned(std::size_t bytes) override {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CalledInContext("cuMemHostAlloc"));
    void* const memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    pinned_[memory] = bytes;
    return memory;
  }
  void FreePinned(void* memory) override {
    MutexLock lock(&mu_);
    pinned_.erase(memory);
    std::free(memory);
  }

  StatusOr<void*> NewStream(bool) override {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CalledInContext("cuStreamCreateWithPriority"));
    auto stream = std::make_unique<SimStream>();
    stream->context = current;
    return streams_.emplace_back(std::move(stream)).get();
  }
  void DeleteStream(void* stream) override {
    MutexLock lock(&mu_);
    WaitUntilEmpty(static_cast<SimStream*>(stream));
    std::erase_if(streams_, [&](const auto& one) { return one.get() == stream; });
  }
  Status Synchronize(void* stream) override {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CalledInContext("cuStreamSynchronize"));
    auto* const one = static_cast<SimStream*>(stream);
    WaitUntilEmpty(one);
    return one->context->lost ? Lost() : OkStatus();
  }
  StatusOr<void*> NewEvent() override {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CalledInContext("cuEventCreate"));
    auto event = std::make_unique<SimEvent>();
    event->context = current;
    return events_.emplace_back(std::move(event)).get();
  }
  void DeleteEvent(void* event) override {
    MutexLock lock(&mu_);
    std::erase_if(events_, [&](const auto& one) { return one.get() == event; });
  }
  Status Record(void* event, void* stream) override {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CalledInContext("cuEventRecord"));
    auto* const one = static_cast<SimEvent*>(event);
    Op op;
    op.kind = Op::Kind::kRecord;
    op.recording = one->latest = std::make_shared<Recording>();
    Push(stream, std::move(op));
    return OkStatus();
  }
  StatusOr<bool> Query(void* event) override {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(Called("cuEventQuery"));
    const auto* const one = static_cast<SimEvent*>(event);
    if (one->context->lost) return Lost();
    return one->latest == nullptr || one->latest->happened;
  }
  Status Wait(void* stream, void* event) override {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CalledInContext("cuStreamWaitEvent"));
    const auto* const one = static_cast<SimEvent*>(event);
    Op op;
    op.kind = Op::Kind::kWait;
    op.recording = one->latest;
    Push(stream, std::move(op));
    return OkStatus();
  }
  Status Copy(void* to, const void* from, std::size_t bytes, void* stream) override {
    Tell({stream, to, from, bytes});
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CalledInContext("cuMemcpyAsync"));
    if (IsDevice(to) && !IsDevice(from) && !IsPinned(from)) ++pageable_copies_;
    Op op;
    op.run = [to, from, bytes] { std::memcpy(to, from, bytes); };
    Push(stream, std::move(op));
    return OkStatus();
  }
  Status Fill(void* to, unsigned char value, std::size_t bytes, void* stream) override {
    Tell({stream, to, nullptr, bytes});
    return Issue(stream, [to, value, bytes] { std::memset(to, value, bytes); });
  }

  Status BeginCapture(void* stream) override {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CalledInContext("cuStreamBeginCapture"));
    auto* const one = static_cast<SimStream*>(stream);
    if (one->capturing) return errors::Internal("cuStreamBeginCapture: already capturing");
    one->capturing = true;
    one->graph.ops.clear();
    return OkStatus();
  }
  StatusOr<void*> EndCapture(void* stream) override {
    MutexLock lock(&mu_);
    auto* const one = static_cast<SimStream*>(stream);
    one->capturing = false;
    MR_RETURN_IF_ERROR(CalledInContext("cuStreamEndCapture"));
    ++graphs_;
    return new SimGraph(std::move(one->graph));
  }
  StatusOr<void*> Instantiate(void* graph) override {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CalledInContext("cuGraphInstantiate"));
    ++graphs_;
    return new SimGraph(*static_cast<SimGraph*>(graph));
  }
  Status Launch(void* executable, void* stream) override {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CalledInContext("cuGraphLaunch"));
    for (const Op& op : static_cast<SimGraph*>(executable)->ops) Push(stream, op);
    return OkStatus();
  }
  void DeleteGraph(void* graph) override {
    MutexLock lock(&mu_);
    --graphs_;
    delete static_cast<SimGraph*>(graph);
  }
  void DeleteExecutable(void* executable) override { DeleteGraph(executable); }

  StatusOr<void*> LoadModule(const void*) override { return NoCode(); }
  void UnloadModule(void*) override {}
  StatusOr<void*> FindFunction(void*, const std::string&) override { return NoCode(); }
  Status LaunchKernel(void*, std::array<unsigned, 3>, std::array<unsigned, 3>, unsigned, void*,
                      void**) override {
    return NoCode();
  }

  Status LaunchFunction(void* stream, std::function<void()> fn) override {
    Tell({stream, nullptr, nullptr, 0});
    return Issue(stream, std::move(fn));
  }
  void SetOnIssue(std::function<void(const Issued&)> on_issue) override {
    MutexLock lock(&mu_);
    on_issue_ = std::make_shared<std::function<void(const Issued&)>>(std::move(on_issue));
  }
  Status LaunchFault(void* stream) override {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CalledInContext("cuLaunchKernel"));
    Op op;
    op.kind = Op::Kind::kFault;
    Push(stream, std::move(op));
    return OkStatus();
  }
  void Hold() override {
    MutexLock lock(&mu_);
    held_ = true;
  }
  void Release() override {
    MutexLock lock(&mu_);
    held_ = false;
    changed_.SignalAll();
  }
  void FailNext(const std::string& call, Status status) override {
    MutexLock lock(&mu_);
    faults_[call] = std::move(status);
  }
  Census Count() override {
    MutexLock lock(&mu_);
    Census census;
    for (const Context& context : contexts_) census.contexts += context.shares;
    census.streams = static_cast<int>(streams_.size());
    census.events = static_cast<int>(events_.size());
    census.allocations = static_cast<int>(allocations_.size());
    census.pinned_allocations = static_cast<int>(pinned_.size());
    census.graphs = graphs_;
    return census;
  }
  int64_t NumCalls(const std::string& call) override {
    MutexLock lock(&mu_);
    return calls_[call];
  }
  int64_t num_pageable_copies() override {
    MutexLock lock(&mu_);
    return pageable_copies_;
  }

 private:
  static Status NoCode() { return errors::Unimplemented("a simulated device has no code"); }

  void Tell(const Issued& issued) {
    std::shared_ptr<std::function<void(const Issued&)>> on_issue;
    {
      MutexLock lock(&mu_);
      on_issue = on_issue_;
    }
    if (on_issue != nullptr) (*on_issue)(issued);
  }
  Status Issue(void* stream, std::function<void()> fn) {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CalledInContext("cuLaunchKernel"));
    Op op;
    op.run = std::move(fn);
    Push(stream, std::move(op));
    return OkStatus();
  }

  Status Called(const char* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ++calls_[call];
    const auto fault = faults_.find(call);
    if (fault == faults_.end()) return OkStatus();
    Status status = std::move(fault->second);
    faults_.erase(fault);
    return status;
  }
  Status CalledInContext(const char* call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    MR_RETURN_IF_ERROR(Called(call));
    if (current == nullptr) return errors::Internal(call, ": CUDA_ERROR_INVALID_CONTEXT (201)");
    return current->lost ? Lost() : OkStatus();
  }

  bool IsDevice(const void* at) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return Within(at, allocations_, [](const auto& entry) { return entry.first; });
  }
  bool IsPinned(const void* at) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return Within(at, pinned_, [](std::size_t bytes) { return bytes; });
  }
  template <typename Map, typename Bytes>
  static bool Within(const void* at, const Map& ranges, const Bytes& bytes) {
    auto next = ranges.upper_bound(const_cast<void*>(at));
    if (next == ranges.begin()) return false;
    --next;
    return at < static_cast<const char*>(next->first) + bytes(next->second);
  }

  void Push(void* stream, Op op) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    auto* const one = static_cast<SimStream*>(stream);
    if (one->capturing) {
      one->graph.ops.push_back(std::move(op));
      return;
    }
    one->ops.push_back(std::move(op));
    changed_.SignalAll();
  }
  void WaitUntilEmpty(SimStream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    while (!stream->ops.empty() || stream->running) changed_.Wait(&mu_);
  }
  void WaitUntilIdle(Context* context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto busy = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return std::any_of(streams_.begin(), streams_.end(), [&](const auto& stream) {
        return stream->context == context && (!stream->ops.empty() || stream->running);
      });
    };
    while (busy()) changed_.Wait(&mu_);
  }

  // The stream whose turn it is; null if none can go on.
  SimStream* Choose() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::vector<SimStream*> ready;
    for (const auto& stream : streams_) {
      if (stream->ops.empty()) continue;
      const Op& op = stream->ops.front();
      const bool waits =
          op.kind == Op::Kind::kWait && op.recording != nullptr && !op.recording->happened;
      if (!waits || stream->context->lost) ready.push_back(stream.get());
    }
    if (ready.empty()) return nullptr;
    return ready[options_.seed == 0 ? 0 : random_() % ready.size()];
  }

  void RunDevices() {
    mu_.Lock();
    while (true) {
      SimStream* const stream = held_ ? nullptr : Choose();
      if (stream == nullptr) {
        if (stopping_) break;
        changed_.Wait(&mu_);
        continue;
      }
      const Op op = std::move(stream->ops.front());
      stream->ops.pop_front();
      if (stream->context->lost) {
        changed_.SignalAll();
        continue;  // nothing runs, and no event happens
      }
      if (op.kind == Op::Kind::kFault) stream->context->lost = true;
      if (op.kind == Op::Kind::kRecord) op.recording->happened = true;
      if (op.kind == Op::Kind::kRun) {
        stream->running = true;
        mu_.Unlock();
        op.run();
        mu_.Lock();
        stream->running = false;
      }
      changed_.SignalAll();
    }
    mu_.Unlock();
  }

  const SimulatedDriverOptions options_;
  Mutex mu_;
  CondVar changed_;
  std::vector<Context> contexts_;  // addresses are constant; contents guarded by mu_
  std::shared_ptr<std::function<void(const Issued&)>> on_issue_ ABSL_GUARDED_BY(mu_);
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
  std::vector<int64_t> used_ ABSL_GUARDED_BY(mu_);
  std::map<void*, std::pair<std::size_t, int>> allocations_ ABSL_GUARDED_BY(mu_);
  std::map<void*, std::size_t> pinned_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<SimStream>> streams_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<SimEvent>> events_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Status> faults_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int64_t> calls_ ABSL_GUARDED_BY(mu_);
  int graphs_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t pageable_copies_ ABSL_GUARDED_BY(mu_) = 0;
  bool held_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<SimulatedDriver> SimulatedDriver::New(SimulatedDriverOptions options) {
  return std::make_unique<Driver>(options);
}

}  // namespace millrace
