// SPDX-License-Identifier: Apache-2.0
#include "kernels/state/update_ledger.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "base/errors.h"
#include "base/strings.h"

namespace millrace {
namespace {

// Not that of any client: their containers are cleaned up on request.
constexpr std::string_view kLedgerContainer = "_ledger";
// How many updates an entry looks back to tell how old one is. Older ones are this old.
constexpr std::size_t kMostRecent = 1024;

int64_t& CountOf(UpdateFate fate, UpdateAccount* account) {
  switch (fate) {
    case UpdateFate::kApplied:
      return account->applied;
    case UpdateFate::kHeld:
      return account->held;
    case UpdateFate::kStale:
      return account->stale;
    case UpdateFate::kDuplicate:
      return account->duplicate;
    case UpdateFate::kCancelled:
      return account->cancelled;
    case UpdateFate::kFailed:
      break;
  }
  return account->failed;
}

}  // namespace

int AgeBucket(int64_t age) {
  if (age <= 0) return 0;
  const auto bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(age - 1)));
  return std::min(kAgeBuckets - 1, bits + 1);
}

// All under the ledger's lock.
class UpdateLedger::Entry {
 public:
  Entry(LedgerKind kind, std::string_view name) : kind(kind), name(name) {}

  UpdateAccount& Account(int source) { return accounts[source]; }

  void NoteUpdate(int64_t clock) {
    // All at once: a step that is warm takes no memory.
    if (recent_.empty()) recent_.assign(kMostRecent, 0);
    recent_[next_] = clock;
    next_ = (next_ + 1) % kMostRecent;
  }

  // How many updates it had since then.
  int64_t UpdatesSince(int64_t clock) const {
    const std::size_t size = recent_.size();
    std::size_t count = 0;
    while (count < size && recent_[(next_ + size - 1 - count) % size] > clock) ++count;
    return static_cast<int64_t>(count);
  }

  const LedgerKind kind;
  const std::string name;
  absl::flat_hash_map<int, UpdateAccount> accounts;  // by source

 private:
  std::vector<int64_t> recent_;  // a ring: when it was updated, by the ledger's clock
  std::size_t next_ = 0;
};

struct UpdateLedger::Source {
  std::string task;
  uint64_t incarnation = 0;
  absl::flat_hash_set<StepKey> seen{};
  std::vector<StepKey> order{};  // of those seen; a ring once it is full
  std::size_t oldest = 0;

  // False if the step has been here.
  bool Remember(const StepKey& step) {
    if (!seen.insert(step).second) return false;
    if (order.size() < kRememberedSteps) {
      order.push_back(step);
      return true;
    }
    seen.erase(order[oldest]);
    order[oldest] = step;
    oldest = (oldest + 1) % kRememberedSteps;
    return true;
  }
};

UpdateLedger::UpdateLedger() {
  sources_.push_back(std::make_unique<Source>());
  sources_.push_back(std::make_unique<Source>(Source{.task = "(others)"}));
}
UpdateLedger::~UpdateLedger() = default;

RefPtr<UpdateLedger> UpdateLedger::Of(ResourceManager* resources) {
  StatusOr<RefPtr<UpdateLedger>> found = resources->LookupOrCreate<UpdateLedger>(
      kLedgerContainer, "",
      []() -> StatusOr<RefPtr<UpdateLedger>> { return MakeRef<UpdateLedger>(); });
  return *std::move(found);  // the creator does not fail
}

UpdateLedger::Entry* UpdateLedger::Find(LedgerKind kind, std::string_view name) {
  MutexLock lock(&mu_);
  return FindLocked(kind, name);
}

UpdateLedger::Entry* UpdateLedger::FindLocked(LedgerKind kind, std::string_view name) {
  StringMap<Entry*>& known = by_name_[static_cast<std::size_t>(kind)];
  const auto it = known.find(name);
  if (it != known.end()) return it->second;
  if (entries_.size() >= kMostEntries) {
    ++left_out_;
    return nullptr;
  }
  entries_.push_back(std::make_unique<Entry>(kind, name));
  return known[entries_.back()->name] = entries_.back().get();
}

void UpdateLedger::NameReference(const void* mutex, std::string_view name) {
  MutexLock lock(&mu_);
  Entry* const entry = FindLocked(LedgerKind::kVariable, name);
  if (entry != nullptr) references_[mutex] = entry;
}

void UpdateLedger::ForgetReference(const void* mutex) {
  MutexLock lock(&mu_);
  references_.erase(mutex);
}

UpdateLedger::Entry* UpdateLedger::FindReference(const void* mutex) const {
  MutexLock lock(&mu_);
  const auto it = references_.find(mutex);
  return it == references_.end() ? nullptr : it->second;
}

int UpdateLedger::AddSource(std::string_view task, uint64_t incarnation) {
  MutexLock lock(&mu_);
  return AddSourceLocked(task, incarnation);
}

int UpdateLedger::AddSourceLocked(std::string_view task, uint64_t incarnation) {
  if (task.empty()) return 0;
  // The newest come most often.
  for (std::size_t i = sources_.size(); i-- > 2;) {
    if (sources_[i]->incarnation == incarnation && sources_[i]->task == task) {
      return static_cast<int>(i);
    }
  }
  if (sources_.size() >= kMostSources) return 1;
  sources_.push_back(
      std::make_unique<Source>(Source{.task = std::string(task), .incarnation = incarnation}));
  return static_cast<int>(sources_.size()) - 1;
}

Status UpdateLedger::Admit(const StepOrigin& step, int source, const Expected& expected) {
  MutexLock lock(&mu_);
  Source& from = *sources_[source];
  // Those that share a number are not told apart.
  if (from.incarnation == 0 || from.Remember({step.session, step.step_id})) return OkStatus();
  for (Entry* entry : expected) {
    UpdateAccount& account = entry->Account(source);
    ++account.pushed;
    ++account.duplicate;
  }
  return errors::AlreadyExists("step ", step.step_id, " of ", from.task,
                               " has been here before: it is not applied again");
}

void UpdateLedger::BeginStep(const StepOrigin& step, int source, const Expected* expected) {
  MutexLock lock(&mu_);
  std::unique_ptr<Step> begun;
  if (idle_.empty()) {
    begun = std::make_unique<Step>();
  } else {
    begun = std::move(idle_.back());
    idle_.pop_back();
  }
  begun->source = source;
  begun->begun = ++clock_;
  begun->expected = expected;
  steps_[{step.session, step.step_id}] = std::move(begun);
}

void UpdateLedger::EndStep(const StepOrigin& step, bool failed) {
  MutexLock lock(&mu_);
  const auto it = steps_.find({step.session, step.step_id});
  if (it == steps_.end()) return;
  std::unique_ptr<Step> ended = std::move(it->second);
  steps_.erase(it);
  if (failed) {
    for (Entry* entry : *ended->expected) {
      const auto came =
          std::find_if(ended->pushed.begin(), ended->pushed.end(),
                       [entry](const auto& p) { return p.first == entry && p.second > 0; });
      if (came == ended->pushed.end()) {
        ++entry->Account(ended->source).not_arrived;
      } else {
        --came->second;
      }
    }
  }
  ended->pushed.clear();
  idle_.push_back(std::move(ended));
}

UpdateLedger::Step* UpdateLedger::FindStep(const StepOrigin& step, int* source) {
  const auto it = steps_.find({step.session, step.step_id});
  if (it == steps_.end()) {
    *source = AddSourceLocked(step.task, 0);
    return nullptr;
  }
  *source = it->second->source;
  return it->second.get();
}

void UpdateLedger::Push(Entry* entry, const StepOrigin& step, UpdateFate fate, int64_t age) {
  if (entry == nullptr) return;
  MutexLock lock(&mu_);
  int source = 0;
  Step* const begun = FindStep(step, &source);
  if (begun != nullptr) {
    const auto same = std::find_if(begun->pushed.begin(), begun->pushed.end(),
                                   [entry](const auto& p) { return p.first == entry; });
    if (same == begun->pushed.end()) {
      begun->pushed.emplace_back(entry, 1);
    } else {
      ++same->second;
    }
  }
  UpdateAccount& account = entry->Account(source);
  ++account.pushed;
  ++CountOf(fate, &account);
  account.last_step_id = step.step_id;
  if (entry->kind == LedgerKind::kVariable && fate == UpdateFate::kApplied) {
    if (begun != nullptr) age = entry->UpdatesSince(begun->begun);
    entry->NoteUpdate(++clock_);
  }
  if (age >= 0) {
    ++account.ages[AgeBucket(age)];
    account.oldest = std::max(account.oldest, age);
  } else if (fate == UpdateFate::kApplied) {
    ++account.age_not_known;
  }
}

void UpdateLedger::Settle(Entry* entry, UpdateFate fate) {
  if (entry == nullptr) return;
  MutexLock lock(&mu_);
  for (auto& [source, account] : entry->accounts) {
    CountOf(fate, &account) += std::exchange(account.held, 0);
  }
}

void UpdateLedger::CountTokens(Entry* entry, const StepOrigin& step, int64_t handed_out,
                               int64_t taken) {
  if (entry == nullptr) return;
  MutexLock lock(&mu_);
  int source = 0;
  (void)FindStep(step, &source);
  UpdateAccount& account = entry->Account(source);
  account.handed_out += handed_out;
  account.taken += taken;
}

std::vector<LedgerEntry> UpdateLedger::Snapshot() const {
  std::vector<LedgerEntry> lines;
  MutexLock lock(&mu_);
  absl::flat_hash_map<std::pair<const Entry*, int>, int64_t> awaited;
  for (const auto& [key, step] : steps_) {
    for (const Entry* entry : *step->expected) ++awaited[{entry, step->source}];
    for (const auto& [entry, count] : step->pushed) awaited[{entry, step->source}] -= count;
  }
  for (const auto& entry : entries_) {
    LedgerEntry& line = lines.emplace_back();
    line.kind = entry->kind;
    line.name = entry->name;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      const auto source = static_cast<int>(i);
      const auto known = entry->accounts.find(source);
      const auto waits = awaited.find({entry.get(), source});
      const int64_t due = waits == awaited.end() ? 0 : std::max<int64_t>(0, waits->second);
      if (known == entry->accounts.end() && due == 0) continue;
      UpdateAccount& account = line.accounts.emplace_back();
      if (known != entry->accounts.end()) account = known->second;
      account.task = sources_[i]->task;
      account.incarnation = sources_[i]->incarnation;
      account.awaited = due;
    }
    std::stable_sort(
        line.accounts.begin(), line.accounts.end(),
        [](const UpdateAccount& a, const UpdateAccount& b) { return a.task < b.task; });
  }
  std::erase_if(lines, [](const LedgerEntry& line) { return line.accounts.empty(); });
  std::sort(lines.begin(), lines.end(), [](const LedgerEntry& a, const LedgerEntry& b) {
    return std::tie(a.kind, a.name) < std::tie(b.kind, b.name);
  });
  return lines;
}

int64_t UpdateLedger::left_out() const {
  MutexLock lock(&mu_);
  return left_out_;
}

std::string UpdateLedger::DebugString() const {
  MutexLock lock(&mu_);
  return StrCat("ledger of ", entries_.size(), " variables, ", sources_.size() - 2, " processes");
}

}  // namespace millrace
