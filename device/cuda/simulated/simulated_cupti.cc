// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/simulated/simulated_cupti.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"

namespace millrace {
namespace {

// Records of the library are larger than what is declared of them.
constexpr std::size_t kTail = 64;

std::size_t SizeOf(int kind) {
  switch (kind) {
    case cupti::kConcurrentKernel:
      return sizeof(cupti::Kernel) + kTail;
    case cupti::kMemcpy:
      return sizeof(cupti::Memcpy) + kTail;
    case cupti::kPeerMemcpy:
      return sizeof(cupti::PeerMemcpy) + kTail;
    case cupti::kMemset:
      return sizeof(cupti::Memset) + kTail;
    case cupti::kExternalCorrelation:
      return sizeof(cupti::ExternalCorrelation);
    default:
      return kTail;  // a call
  }
}

template <typename Record>
std::string Bytes(const Record& record) {
  std::string bytes(SizeOf(record.kind), '\xee');
  std::memcpy(bytes.data(), &record, sizeof(record));
  return bytes;
}

struct CallRecord {
  int kind;
  uint32_t correlation;
};

int KindOf(const void* record) {
  int kind = 0;
  std::memcpy(&kind, record, sizeof(kind));
  return kind;
}

thread_local std::vector<uint64_t> pushed_ids;

}  // namespace

struct SimulatedCupti::State {
  mutable Mutex mu;
  CondVar changed;
  Habits habits ABSL_GUARDED_BY(mu);
  std::map<std::string, int> faults ABSL_GUARDED_BY(mu);
  std::set<int> kinds ABSL_GUARDED_BY(mu);
  CuptiRequest* requested ABSL_GUARDED_BY(mu) = nullptr;
  CuptiComplete* completed ABSL_GUARDED_BY(mu) = nullptr;
  std::vector<std::string> records ABSL_GUARDED_BY(mu);
  uint8_t* buffer ABSL_GUARDED_BY(mu) = nullptr;  // for the first of them
  std::size_t buffer_bytes ABSL_GUARDED_BY(mu) = 0;
  std::size_t dropped ABSL_GUARDED_BY(mu) = 0;
  uint32_t last_correlation ABSL_GUARDED_BY(mu) = 0;
  uint64_t time ABSL_GUARDED_BY(mu) = 1;
  bool follows_host ABSL_GUARDED_BY(mu) = false;
  uint32_t version ABSL_GUARDED_BY(mu) = 130001;
  int64_t pushed ABSL_GUARDED_BY(mu) = 0;
  int64_t popped ABSL_GUARDED_BY(mu) = 0;
  int64_t flushes ABSL_GUARDED_BY(mu) = 0;
  int64_t forced ABSL_GUARDED_BY(mu) = 0;
  std::vector<std::thread> threads ABSL_GUARDED_BY(mu);

  int Fault(const std::string& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const auto it = faults.find(call);
    if (it == faults.end()) return cupti::kSuccess;
    const int result = it->second;
    faults.erase(it);
    return result;
  }
  void Add(std::string record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void HandOut(std::vector<std::string> taken, uint8_t* first, std::size_t bytes);
  int Flush(uint32_t flags);
};

namespace {

SimulatedCupti::State* current = nullptr;

// The library's functions. Each looks for a fault first.
#define MR_BEGIN(name)                     \
  SimulatedCupti::State& state = *current; \
  MutexLock lock(&state.mu);               \
  if (const int fault = state.Fault(#name); fault != cupti::kSuccess) return fault

int Enable(int kind) {
  MR_BEGIN(cuptiActivityEnable);
  state.kinds.insert(kind);
  return cupti::kSuccess;
}

int Disable(int kind) {
  MR_BEGIN(cuptiActivityDisable);
  state.kinds.erase(kind);
  return cupti::kSuccess;
}

int EnableDriverApi(uint32_t, uint8_t) {
  MR_BEGIN(cuptiActivityEnableDriverApi);
  return cupti::kSuccess;
}

int FlushAll(uint32_t flags) { return current->Flush(flags); }

int NextRecord(uint8_t* buffer, std::size_t valid, void** record) {
  {
    MR_BEGIN(cuptiActivityGetNextRecord);
  }
  uint8_t* const before = static_cast<uint8_t*>(*record);
  uint8_t* const next = before == nullptr ? buffer : before + SizeOf(KindOf(before));
  if (next >= buffer + valid) return cupti::kMaxLimitReached;
  if (KindOf(next) == 0) return cupti::kInvalidKind;
  *record = next;
  return cupti::kSuccess;
}

int NumDropped(void*, uint32_t, std::size_t* dropped) {
  MR_BEGIN(cuptiActivityGetNumDroppedRecords);
  *dropped = std::exchange(state.dropped, 0);
  return cupti::kSuccess;
}

int Push(int kind, uint64_t id) {
  MR_BEGIN(cuptiActivityPushExternalCorrelationId);
  MR_CHECK(kind == cupti::kCustom0);
  pushed_ids.push_back(id);
  ++state.pushed;
  return cupti::kSuccess;
}

int Pop(int, uint64_t* last) {
  MR_BEGIN(cuptiActivityPopExternalCorrelationId);
  MR_CHECK(!pushed_ids.empty());
  *last = pushed_ids.back();
  pushed_ids.pop_back();
  ++state.popped;
  return cupti::kSuccess;
}

int RegisterCallbacks(CuptiRequest* requested, CuptiComplete* completed) {
  MR_BEGIN(cuptiActivityRegisterCallbacks);
  state.requested = requested;
  state.completed = completed;
  return cupti::kSuccess;
}

int ResultString(int result, const char** text) {
  *text = result == cupti::kInsufficientPrivileges ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
                                                   : "CUPTI_ERROR_SIMULATED";
  return cupti::kSuccess;
}

int Timestamp(uint64_t* nanoseconds) {
  MR_BEGIN(cuptiGetTimestamp);
  *nanoseconds = state.follows_host ? static_cast<uint64_t>(WallNanos()) : state.time;
  return cupti::kSuccess;
}

int Version(uint32_t* version) {
  MR_BEGIN(cuptiGetVersion);
  *version = state.version;
  return cupti::kSuccess;
}
#undef MR_BEGIN

constexpr CuptiCalls kCalls = {
    .cuptiActivityDisable = &Disable,
    .cuptiActivityEnable = &Enable,
    .cuptiActivityEnableDriverApi = &EnableDriverApi,
    .cuptiActivityFlushAll = &FlushAll,
    .cuptiActivityGetNextRecord = &NextRecord,
    .cuptiActivityGetNumDroppedRecords = &NumDropped,
    .cuptiActivityPopExternalCorrelationId = &Pop,
    .cuptiActivityPushExternalCorrelationId = &Push,
    .cuptiActivityRegisterCallbacks = &RegisterCallbacks,
    .cuptiGetResultString = &ResultString,
    .cuptiGetTimestamp = &Timestamp,
    .cuptiGetVersion = &Version,
};

}  // namespace

void SimulatedCupti::State::Add(std::string record) {
  if (records.empty()) {
    std::size_t most = 0;
    requested(&buffer, &buffer_bytes, &most);
  }
  records.push_back(std::move(record));
}

// Fills buffers, the first of which it has, and hands them out.
void SimulatedCupti::State::HandOut(std::vector<std::string> taken, uint8_t* first,
                                    std::size_t bytes) {
  CuptiRequest* request = nullptr;
  CuptiComplete* complete = nullptr;
  {
    MutexLock lock(&mu);
    request = requested;
    complete = completed;
  }
  std::size_t used = 0;
  std::size_t lost = 0;
  for (const std::string& record : taken) {
    if (first != nullptr && used + record.size() > bytes) {
      complete(nullptr, 0, first, bytes, std::exchange(used, 0));
      first = nullptr;
    }
    std::size_t most = 0;
    if (first == nullptr) request(&first, &bytes, &most);
    if (first == nullptr || record.size() > bytes) {
      ++lost;
      continue;
    }
    std::memcpy(first + used, record.data(), record.size());
    used += record.size();
  }
  {
    MutexLock lock(&mu);
    dropped += lost;
  }
  if (first != nullptr) complete(nullptr, 0, first, bytes, used);
}

int SimulatedCupti::State::Flush(uint32_t flags) {
  std::vector<std::string> taken;
  uint8_t* first = nullptr;
  std::size_t bytes = 0;
  {
    MutexLock lock(&mu);
    ++flushes;
    forced += flags == cupti::kFlushForced ? 1 : 0;
    while (habits.hangs) changed.Wait(&mu);
    const bool keeps = habits.keeps || (habits.waits_for_force && flags != cupti::kFlushForced);
    if (keeps || records.empty()) return cupti::kSuccess;
    taken.swap(records);
    if (habits.backwards) std::reverse(taken.begin(), taken.end());
    // One that has not ended.
    if (habits.waits_for_force) taken.push_back(std::string(kTail, '\0'));
    first = std::exchange(buffer, nullptr);
    bytes = buffer_bytes;
    if (habits.late) {
      threads.emplace_back([this, taken = std::move(taken), first, bytes] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        HandOut(taken, first, bytes);
      });
      return cupti::kSuccess;
    }
  }
  HandOut(std::move(taken), first, bytes);
  return cupti::kSuccess;
}

SimulatedCupti::SimulatedCupti() : state_(std::make_unique<State>()) {
  MR_CHECK(current == nullptr);
  current = state_.get();
}

SimulatedCupti::~SimulatedCupti() {
  Settle();
  current = nullptr;
}

void SimulatedCupti::Settle() {
  SetHabits({});
  std::vector<std::thread> threads;
  {
    MutexLock lock(&state_->mu);
    threads.swap(state_->threads);
  }
  for (std::thread& thread : threads) thread.join();
}

const CuptiCalls* SimulatedCupti::calls() const { return &kCalls; }

// Records a call, with what is pushed around it, and gives its correlation.
namespace {

template <typename Record>
void Enqueue(SimulatedCupti::State* state, Record record) {
  MutexLock lock(&state->mu);
  const uint32_t correlation = ++state->last_correlation;
  const bool has_calls = state->kinds.contains(cupti::kDriver);
  if (has_calls && state->kinds.contains(cupti::kExternalCorrelation) && !pushed_ids.empty()) {
    state->Add(Bytes(cupti::ExternalCorrelation{cupti::kExternalCorrelation, cupti::kCustom0,
                                                pushed_ids.back(), correlation, 0}));
  }
  if (has_calls) state->Add(Bytes(CallRecord{cupti::kDriver, correlation}));
  if (!state->kinds.contains(record.kind)) return;
  record.correlation = correlation;
  state->Add(Bytes(record));
}

}  // namespace

void SimulatedCupti::Launch(const char* function, uint32_t stream, uint64_t start, uint64_t end) {
  cupti::Kernel kernel{};
  kernel.kind = cupti::kConcurrentKernel;
  kernel.name = function;
  kernel.stream = stream;
  kernel.start = start;
  kernel.end = end;
  Enqueue(state_.get(), kernel);
}

void SimulatedCupti::Copy(uint8_t kind, uint64_t bytes, uint32_t stream, uint64_t start,
                          uint64_t end) {
  cupti::Memcpy copy{};
  copy.kind = cupti::kMemcpy;
  copy.copy_kind = kind;
  copy.bytes = bytes;
  copy.stream = stream;
  copy.start = start;
  copy.end = end;
  Enqueue(state_.get(), copy);
}

void SimulatedCupti::CopyToPeer(uint64_t bytes, uint32_t stream, uint64_t start, uint64_t end) {
  cupti::PeerMemcpy copy{};
  copy.kind = cupti::kPeerMemcpy;
  copy.copy_kind = cupti::kPeerToPeer;
  copy.bytes = bytes;
  copy.stream = stream;
  copy.start = start;
  copy.end = end;
  Enqueue(state_.get(), copy);
}

void SimulatedCupti::Fill(uint64_t bytes, uint32_t stream, uint64_t start, uint64_t end) {
  cupti::Memset fill{};
  fill.kind = cupti::kMemset;
  fill.bytes = bytes;
  fill.stream = stream;
  fill.start = start;
  fill.end = end;
  Enqueue(state_.get(), fill);
}

void SimulatedCupti::SetHabits(const Habits& habits) {
  MutexLock lock(&state_->mu);
  state_->habits = habits;
  state_->changed.SignalAll();
}
void SimulatedCupti::SetTime(uint64_t nanoseconds) {
  MutexLock lock(&state_->mu);
  state_->time = nanoseconds;
}
void SimulatedCupti::FollowHostClock() {
  MutexLock lock(&state_->mu);
  state_->follows_host = true;
}
void SimulatedCupti::SetVersion(uint32_t version) {
  MutexLock lock(&state_->mu);
  state_->version = version;
}
void SimulatedCupti::FailNext(const std::string& call, int result) {
  MutexLock lock(&state_->mu);
  state_->faults[call] = result;
}

int SimulatedCupti::num_kinds() const {
  MutexLock lock(&state_->mu);
  return static_cast<int>(state_->kinds.size());
}
int64_t SimulatedCupti::num_pushed() const {
  MutexLock lock(&state_->mu);
  return state_->pushed;
}
int64_t SimulatedCupti::num_popped() const {
  MutexLock lock(&state_->mu);
  return state_->popped;
}
int64_t SimulatedCupti::num_flushes() const {
  MutexLock lock(&state_->mu);
  return state_->flushes;
}
int64_t SimulatedCupti::num_forced() const {
  MutexLock lock(&state_->mu);
  return state_->forced;
}

}  // namespace millrace
