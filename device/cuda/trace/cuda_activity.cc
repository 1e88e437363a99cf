// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/trace/cuda_activity.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "device/cuda/trace/cupti_buffers.h"
#include "device/cuda/trace/cupti_control.h"
#include "device/cuda/trace/cupti_match.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Without force CUPTI keeps buffers in which something has not ended: that of other steps.
constexpr int kFlushesBeforeForce = 2;

}  // namespace

// Locks: `switch_mu` before `mu`. No function of CUPTI's is called under `mu`, which callbacks of
// CUPTI's take.
struct CudaActivities::Impl {
  class Recording;

  explicit Impl(CudaActivityOptions given)
      : options(std::move(given)), buffers(options.buffer_bytes, options.max_buffers) {}

  Status SwitchOn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(switch_mu);
  void Remove(Recording* recording);
  std::string WaitForBuffers(const Recording& recording, milliseconds limit);
  void RunFlusher();
  void CountDropped();
  void ForgetOld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // CUPTI calls functions, not objects.
  static void Requested(uint8_t** buffer, std::size_t* bytes, std::size_t* max_records);
  static void Completed(void* context, uint32_t stream, uint8_t* buffer, std::size_t bytes,
                        std::size_t valid);
  static std::atomic<Impl*> receiver;

  const CudaActivityOptions options;
  std::atomic<bool>* any = nullptr;
  std::atomic<const CuptiCalls*> calls{nullptr};  // constant after the first recording

  Mutex switch_mu;
  int num_users ABSL_GUARDED_BY(switch_mu) = 0;
  bool registered ABSL_GUARDED_BY(switch_mu) = false;

  Mutex mu;
  CondVar changed;
  std::vector<Recording*> recordings ABSL_GUARDED_BY(mu);
  uint64_t last_id ABSL_GUARDED_BY(mu) = 0;
  CuptiBuffers buffers ABSL_GUARDED_BY(mu);
  CuptiRecords records ABSL_GUARDED_BY(mu);
  std::thread flusher ABSL_GUARDED_BY(mu);
  int64_t flushes_wanted ABSL_GUARDED_BY(mu) = 0;
  int64_t flushes_done ABSL_GUARDED_BY(mu) = 0;
  bool force ABSL_GUARDED_BY(mu) = false;
  bool stopping ABSL_GUARDED_BY(mu) = false;
};

std::atomic<CudaActivities::Impl*> CudaActivities::Impl::receiver{nullptr};

class CudaActivities::Impl::Recording final : public ActivityRecording {
 public:
  Recording(Impl* owner, const Accelerator* on, RefPtr<DeviceWork> of)
      : device(on), work(std::move(of)), owner_(owner) {}
  ~Recording() override { owner_->Remove(this); }
  ActivityReport Finish(milliseconds limit) override;

  const Accelerator* const device;
  const RefPtr<DeviceWork> work;
  CuptiMoment begin;  // constant once it is shown to others
  // Guarded by the owner's lock.
  EnqueuedById enqueued;
  uint64_t before_first_id = 0;
  int64_t dropped = 0;     // records, since it began
  int64_t unreadable = 0;  // buffers
  int64_t refused = 0;     // ids

 private:
  Impl* const owner_;
};

// ---- CUPTI's side ----

void CudaActivities::Impl::Requested(uint8_t** buffer, std::size_t* bytes,
                                     std::size_t* max_records) {
  *buffer = nullptr;
  *bytes = 0;
  *max_records = 0;  // as many as there is room for
  Impl* const self = receiver.load(std::memory_order_acquire);
  if (self == nullptr) return;
  MutexLock lock(&self->mu);
  *buffer = self->buffers.Take();
  if (*buffer != nullptr) *bytes = self->buffers.bytes();
}

void CudaActivities::Impl::Completed(void*, uint32_t, uint8_t* buffer, std::size_t,
                                     std::size_t valid) {
  Impl* const self = receiver.load(std::memory_order_acquire);
  if (self == nullptr) return;
  CuptiRecords read;
  const bool readable = ReadCuptiBuffer(*self->calls.load(), buffer, valid, &read).ok();
  self->CountDropped();
  MutexLock lock(&self->mu);
  self->buffers.Put(buffer);
  self->changed.SignalAll();
  if (self->recordings.empty()) return;
  for (Recording* const recording : self->recordings) recording->unreadable += readable ? 0 : 1;
  CuptiRecords& all = self->records;
  std::move(read.activities.begin(), read.activities.end(), std::back_inserter(all.activities));
  all.pushed.insert(all.pushed.end(), read.pushed.begin(), read.pushed.end());
}

void CudaActivities::Impl::CountDropped() {
  std::size_t dropped = 0;
  const int result = calls.load()->cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped);
  if (result != cupti::kSuccess || dropped == 0) return;
  MutexLock lock(&mu);
  // Whose they were is not known.
  for (Recording* const recording : recordings) {
    recording->dropped += static_cast<int64_t>(dropped);
  }
}

Status CudaActivities::Impl::SwitchOn() {
  if (calls.load() == nullptr) {
    MR_ASSIGN_OR_RETURN(const CuptiCalls* const loaded, options.load());
    Impl* nobody = nullptr;
    if (!receiver.compare_exchange_strong(nobody, this)) {
      return errors::FailedPrecondition("something else in this process receives CUPTI's buffers");
    }
    calls.store(loaded);
    MutexLock lock(&mu);
    flusher = std::thread([this] { RunFlusher(); });
  }
  if (!registered) {
    MR_RETURN_IF_ERROR(RegisterAtCupti(*calls.load(), &Requested, &Completed));
    registered = true;
  }
  return SwitchCuptiOn(*calls.load());
}

// Flushing may block for as long as CUPTI likes; who waits for it has a deadline.
void CudaActivities::Impl::RunFlusher() {
  mu.Lock();
  while (true) {
    while (flushes_done == flushes_wanted && !stopping) changed.Wait(&mu);
    if (stopping) break;
    const int64_t wanted = flushes_wanted;
    const bool forced = std::exchange(force, false);
    mu.Unlock();
    calls.load()->cuptiActivityFlushAll(forced ? cupti::kFlushForced : 0);
    CountDropped();
    mu.Lock();
    flushes_done = wanted;
    changed.SignalAll();
  }
  mu.Unlock();
}

// Until all buffers that CUPTI has are here. Else what is known of those that are not.
std::string CudaActivities::Impl::WaitForBuffers(const Recording& recording, milliseconds limit) {
  const Clock::time_point start = Clock::now();
  const Clock::time_point deadline = start + limit;
  MutexLock lock(&mu);
  const int64_t latest = buffers.latest();
  for (int attempt = 0;; ++attempt) {
    // What force hands out before it has ended is lost, to another recording perhaps.
    const bool forced =
        recordings.size() == 1 ? attempt >= kFlushesBeforeForce : Clock::now() > start + limit / 2;
    const int64_t flush = ++flushes_wanted;
    force = force || forced;
    changed.SignalAll();
    while (flushes_done < flush) {
      if (!changed.WaitUntil(&mu, deadline) && flushes_done < flush) {
        return StrCat("CUPTI did not hand out its buffers within ", limit.count(), " ms");
      }
    }
    const Clock::time_point until = std::min(deadline, Clock::now() + options.settle);
    while (buffers.NumOut(latest) > 0) {
      if (!changed.WaitUntil(&mu, until)) break;
    }
    const int out = buffers.NumOut(latest);
    if (out == 0) return "";
    if (forced || Clock::now() >= deadline) {
      return StrCat("CUPTI kept ", out, " of its buffers");
    }
  }
}

// ---- recordings ----

ActivityReport CudaActivities::Impl::Recording::Finish(milliseconds limit) {
  std::vector<std::string> missing;
  if (std::string kept = owner_->WaitForBuffers(*this, limit); !kept.empty()) {
    missing.push_back(std::move(kept));
  }
  const CuptiMoment end = CuptiNow(*owner_->calls.load(), owner_->options.wall_nanos);
  ActivityReport report;
  {
    MutexLock lock(&owner_->mu);
    int64_t untimed = 0;
    report.activities = TakeActivities(&owner_->records, enqueued, begin, end, &untimed);
    if (dropped > 0) missing.push_back(StrCat("CUPTI had no room for ", dropped, " records"));
    if (untimed > 0) missing.push_back(StrCat("CUPTI has no times of ", untimed, " activities"));
    if (refused > 0) missing.push_back(StrCat("CUPTI took no ids for ", refused, " operations"));
    if (unreadable > 0) missing.push_back(StrCat("CUPTI could not read ", unreadable, " buffers"));
  }
  PrepareForPeople(&report.activities);
  report.shortfall = StrJoin(missing, "; ");
  return report;
}

// What belongs to no recording that is left.
void CudaActivities::Impl::ForgetOld() {
  if (recordings.empty()) {
    records = CuptiRecords();
    buffers.Trim();
    return;
  }
  const Recording& oldest = *recordings.front();
  ForgetBefore(&records, oldest.before_first_id, oldest.begin.cupti);
}

void CudaActivities::Impl::Remove(Recording* recording) {
  MutexLock switch_lock(&switch_mu);
  {
    MutexLock lock(&mu);
    std::erase(recordings, recording);
    any->store(!recordings.empty(), std::memory_order_release);
    ForgetOld();
  }
  if (--num_users == 0) SwitchCuptiOff(*calls.load());
}

// ---- CudaActivities ----

CudaActivities::CudaActivities(CudaActivityOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {
  impl_->any = &any_;
}

CudaActivities::~CudaActivities() {
  std::thread flusher;
  {
    MutexLock lock(&impl_->mu);
    impl_->stopping = true;
    impl_->changed.SignalAll();
    flusher.swap(impl_->flusher);
  }
  if (flusher.joinable()) flusher.join();
  Impl* self = impl_.get();
  Impl::receiver.compare_exchange_strong(self, nullptr);
}

StatusOr<std::unique_ptr<ActivityRecording>> CudaActivities::Record(const Accelerator* device,
                                                                    RefPtr<DeviceWork> work) {
  MutexLock switch_lock(&impl_->switch_mu);
  if (impl_->num_users == 0) MR_RETURN_IF_ERROR(impl_->SwitchOn());
  ++impl_->num_users;
  auto recording = std::make_unique<Impl::Recording>(impl_.get(), device, std::move(work));
  recording->begin = CuptiNow(*impl_->calls.load(), impl_->options.wall_nanos);
  MutexLock lock(&impl_->mu);
  recording->before_first_id = impl_->last_id;
  impl_->recordings.push_back(recording.get());
  any_.store(true, std::memory_order_release);
  return std::unique_ptr<ActivityRecording>(std::move(recording));
}

bool CudaActivities::Push(const Accelerator* device, const DeviceWork* work, std::string_view node,
                          StreamKind stream) {
  uint64_t id = 0;
  Impl::Recording* found = nullptr;
  {
    MutexLock lock(&impl_->mu);
    for (Impl::Recording* const recording : impl_->recordings) {
      if (recording->work.get() == work && recording->device == device) found = recording;
    }
    if (found == nullptr) return false;
    id = ++impl_->last_id;
    found->enqueued[id] = {std::string(node), stream};
  }
  const int result =
      impl_->calls.load()->cuptiActivityPushExternalCorrelationId(cupti::kCustom0, id);
  if (result == cupti::kSuccess) return true;
  MutexLock lock(&impl_->mu);
  // It may be gone by now.
  for (Impl::Recording* const recording : impl_->recordings) {
    if (recording == found) ++recording->refused;
  }
  return false;
}

void CudaActivities::Pop() {
  uint64_t last = 0;
  impl_->calls.load()->cuptiActivityPopExternalCorrelationId(cupti::kCustom0, &last);
}

CudaActivities* LoadedCudaActivities() {
  static auto* const loaded = new CudaActivities(CudaActivityOptions());
  return loaded;
}

}  // namespace millrace
