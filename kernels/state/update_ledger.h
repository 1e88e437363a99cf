// SPDX-License-Identifier: Apache-2.0
// What became of the updates that workers brought to the variables, accumulators and token queues
// of a device.
//
// Kernels that update say so, under the lock of what they update; graphs that have such kernels say
// when their steps begin and end. Nothing else of a step knows of the ledger.
#ifndef KERNELS_STATE_UPDATE_LEDGER_H_
#define KERNELS_STATE_UPDATE_LEDGER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "base/string_map.h"
#include "device/resource_manager.h"
#include "millrace/ledger.h"
#include "millrace/status.h"

namespace millrace {

// What became of an update that has come to its kernel.
enum class UpdateFate {
  kApplied,
  kHeld,       // in an accumulator, until its average is taken
  kStale,      // dropped: older than what the accumulator collects
  kDuplicate,  // dropped: the step had been here before
  kCancelled,  // dropped: the step was cancelled by then, or the accumulator was removed
  kFailed,     // dropped: it does not fit the variable, or there is no memory
};

// The bucket of UpdateAccount::ages. Pure.
int AgeBucket(int64_t age);

// Whose step a kernel runs in. The step is known to the ledger if its graph has begun it there.
struct StepOrigin {
  std::string_view task;          // of the master; "": not known. Lives as long as the call.
  const void* session = nullptr;  // of the step's environment; only compared
  int64_t step_id = 0;
  // Of the session, as SessionTensors has them; 0: not known. The name lives as long as the call.
  int64_t session_number = 0;
  std::string_view session_name{};
};

// One of a device, for as long as the device. Thread-safe; never blocks but for its lock, under
// which nothing else is called.
class UpdateLedger : public Resource {
 public:
  UpdateLedger();
  ~UpdateLedger() override;

  class Entry;  // of one variable, accumulator, queue or bound; lives as long as the ledger

  // What a graph may update in a step, as far as its nodes tell.
  using Expected = std::vector<Entry*>;

  // That of the device; no client's Reset takes it away.
  static RefPtr<UpdateLedger> Of(ResourceManager* resources);

  // The entry, made if it is new. Null once there are kMostEntries: counted in left_out.
  Entry* Find(LedgerKind kind, std::string_view name);
  // References do not carry the name of their variable: `mutex` is what guards it, until forgotten.
  void NameReference(const void* mutex, std::string_view name);
  void ForgetReference(const void* mutex);
  Entry* FindReference(const void* mutex) const;  // null: nobody named it

  // A process whose sessions have steps; the number stays. 0 is the one that is not known. Beyond
  // kMostSources all new ones share a number, of the task "(others)".
  int AddSource(std::string_view task, uint64_t incarnation);
  // AlreadyExists if the source is known and the step is among its last kRememberedSteps: then an
  // update of each that is expected counts as pushed and as a duplicate.
  Status Admit(const StepOrigin& step, int source, const Expected& expected);
  // Between these two, `expected` must live, and updates of the step get their age. Of a step that
  // failed, what has not been pushed has not arrived.
  void BeginStep(const StepOrigin& step, int source, const Expected* expected);
  void EndStep(const StepOrigin& step, bool failed);

  // An update is there, and this is its fate. Of an applied one the age is how many updates the
  // entry had from other steps since this step began; of an accumulator's, `age`, if not negative.
  void Push(Entry* entry, const StepOrigin& step, UpdateFate fate, int64_t age = -1);
  // What the accumulator held was taken, or is lost.
  void Settle(Entry* entry, UpdateFate fate);
  // Tokens went into a queue, or were taken out of it.
  void CountTokens(Entry* entry, const StepOrigin& step, int64_t handed_out, int64_t taken);

  std::vector<LedgerEntry> Snapshot() const;
  int64_t left_out() const;
  std::string DebugString() const override;

  static constexpr std::size_t kMostEntries = 65536;
  static constexpr std::size_t kMostSources = 1024;
  static constexpr std::size_t kRememberedSteps = 1024;

 private:
  struct Source;
  struct Step {
    int source = 0;
    int64_t begun = 0;  // by clock_
    const Expected* expected = nullptr;
    std::vector<std::pair<const Entry*, int>> pushed{};  // how many
  };
  using StepKey = std::pair<const void*, int64_t>;

  Entry* FindLocked(LedgerKind kind, std::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int AddSourceLocked(std::string_view task, uint64_t incarnation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null if it has not begun here; `source` is whose it is all the same.
  Step* FindStep(const StepOrigin& step, int* source) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  int64_t clock_ ABSL_GUARDED_BY(mu_) = 0;  // grows with every step that begins and every update
  int64_t left_out_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mu_);
  std::array<StringMap<Entry*>, kLedgerKinds> by_name_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<const void*, Entry*> references_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Source>> sources_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<StepKey, std::unique_ptr<Step>> steps_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Step>> idle_
      ABSL_GUARDED_BY(mu_);  // so that warm steps take no memory
};

}  // namespace millrace

#endif  // KERNELS_STATE_UPDATE_LEDGER_H_
