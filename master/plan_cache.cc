// SPDX-License-Identifier: Apache-2.0
#include "master/plan_cache.h"

#include <algorithm>
#include <atomic>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "base/calls/request_text.h"
#include "base/deadline_timer.h"
#include "base/engine_thread.h"
#include "base/errors.h"
#include "base/log.h"

namespace millrace {
namespace {

// More spellings of requests than this are looked up by signature.
constexpr size_t kMaxBindings = 4096;

class RequestHash {
 public:
  void Add(std::string_view name) {
    state_ = absl::HashOf(state_, absl::string_view(name.data(), name.size()));
  }
  void NextList() { state_ = absl::HashOf(state_, 1); }
  size_t value() const { return state_; }

 private:
  size_t state_ = 0;
};

// One text that two signatures share only if they are equal, whatever the names hold.
std::string KeyOf(const RunSignature& signature) {
  std::string key(signature.partial ? "partial" : "");
  if (signature.keeps_graphs) key += "graphs";
  if (signature.collective_graph_key != 0) StrAppend(&key, signature.collective_graph_key);
  const auto add = [&key](std::string_view name) { StrAppend(&key, name.size(), ":", name); };
  for (const auto* list : {&signature.feeds, &signature.fetches, &signature.targets}) {
    StrAppend(&key, "\n", list->size(), " ");
    for (const std::string& name : *list) add(name);
  }
  StrAppend(&key, "\n");
  for (const auto& [from, to] : signature.connections) {
    add(from);
    add(to);
  }
  return key;
}

Status FedMoreThanOnce(std::string_view name) {
  return errors::InvalidArgument("Endpoint \"", name, "\" fed more than once.");
}

void SortUnique(std::vector<std::string>* names) {
  std::sort(names->begin(), names->end());
  names->erase(std::unique(names->begin(), names->end()), names->end());
}

int IndexOf(const std::vector<std::string>& sorted, std::string_view name) {
  return static_cast<int>(std::lower_bound(sorted.begin(), sorted.end(), name) - sorted.begin());
}

// First name that only the first of two sorted lists has, quoted; "" if there is none.
std::string OnlyIn(const std::vector<std::string>& names, const std::vector<std::string>& others) {
  for (const std::string& name : names) {
    if (!std::binary_search(others.begin(), others.end(), name)) return StrCat("'", name, "'");
  }
  return "";
}

// "fetches 'b:0' and not 'a:0'", for the first of the lists that differ.
std::string Difference(const RunSignature& now, const RunSignature& before) {
  const auto of = [](const char* verb, const std::vector<std::string>& names,
                     const std::vector<std::string>& others) {
    const std::string more = OnlyIn(names, others), less = OnlyIn(others, names);
    if (more.empty() && less.empty()) return std::string();
    if (less.empty()) return StrCat(verb, " ", more, ", too");
    if (more.empty()) return StrCat("no longer ", verb, " ", less);
    return StrCat(verb, " ", more, " and not ", less);
  };
  for (const std::string& text :
       {of("fetches", now.fetches, before.fetches), of("runs", now.targets, before.targets),
        of("feeds", now.feeds, before.feeds)}) {
    if (!text.empty()) return text;
  }
  return "has other options";
}

}  // namespace

std::string CanonicalTensorName(std::string_view name) {
  const bool has_index = name.find(':') != std::string_view::npos;
  return has_index ? std::string(name) : StrCat(name, ":0");
}

StatusOr<RunSignature> MakeSignature(std::vector<std::string> feeds,
                                     std::vector<std::string> fetches,
                                     std::vector<std::string> targets, Binding* binding) {
  if (fetches.empty() && targets.empty()) {
    return errors::InvalidArgument("Must specify at least one target to fetch or execute.");
  }
  RunSignature signature;
  for (const std::string& name : feeds) signature.feeds.push_back(CanonicalTensorName(name));
  for (const std::string& name : fetches) signature.fetches.push_back(CanonicalTensorName(name));
  signature.targets = targets;
  const std::vector<std::string> feeds_in_order = signature.feeds;
  const std::vector<std::string> fetches_in_order = signature.fetches;
  std::sort(signature.feeds.begin(), signature.feeds.end());
  SortUnique(&signature.fetches);
  SortUnique(&signature.targets);

  const auto twice = std::adjacent_find(signature.feeds.begin(), signature.feeds.end());
  if (twice != signature.feeds.end()) return FedMoreThanOnce(*twice);
  for (const std::string& name : signature.feeds) {
    if (std::binary_search(signature.fetches.begin(), signature.fetches.end(), name)) {
      return errors::InvalidArgument(name, " is both fed and fetched.");
    }
  }
  for (const std::string& name : feeds_in_order) {
    binding->feeds.push_back(IndexOf(signature.feeds, name));
  }
  for (const std::string& name : fetches_in_order) {
    binding->fetches.push_back(IndexOf(signature.fetches, name));
  }
  binding->feed_names = std::move(feeds);
  binding->fetch_names = std::move(fetches);
  binding->target_names = std::move(targets);
  return signature;
}

std::shared_ptr<const Binding> PlanCache::Find(
    std::span<const std::pair<std::string, Tensor>> feeds, std::span<const std::string> fetches,
    std::span<const std::string> targets, int64_t collective_graph_key) const {
  RequestHash hash;
  for (const auto& feed : feeds) hash.Add(feed.first);
  hash.NextList();
  for (const std::string& name : fetches) hash.Add(name);
  hash.NextList();
  for (const std::string& name : targets) hash.Add(name);

  MutexLock lock(&mu_);
  ++unknown_;
  const auto it = bindings_.find(hash.value());
  if (it == bindings_.end()) return nullptr;
  for (const auto& binding : it->second) {
    const bool same =
        binding->plan->signature.collective_graph_key == collective_graph_key &&
        std::equal(feeds.begin(), feeds.end(), binding->feed_names.begin(),
                   binding->feed_names.end(),
                   [](const auto& feed, const std::string& name) { return feed.first == name; }) &&
        std::equal(fetches.begin(), fetches.end(), binding->fetch_names.begin(),
                   binding->fetch_names.end()) &&
        std::equal(targets.begin(), targets.end(), binding->target_names.begin(),
                   binding->target_names.end());
    if (!same) continue;
    --unknown_;
    ++known_;
    return binding;
  }
  return nullptr;
}

void PlanCache::Remember(std::shared_ptr<const Binding> binding) {
  RequestHash hash;
  for (const std::string& name : binding->feed_names) hash.Add(name);
  hash.NextList();
  for (const std::string& name : binding->fetch_names) hash.Add(name);
  hash.NextList();
  for (const std::string& name : binding->target_names) hash.Add(name);
  MutexLock lock(&mu_);
  if (bindings_.size() >= kMaxBindings) return;
  bindings_[hash.value()].push_back(std::move(binding));
}

// Whoever claims it calls back: the plan, the deadline or the caller.
class PlanCache::Waiter : public RefCounted {
 public:
  explicit Waiter(Ready ready) : ready_(std::move(ready)) {}

  bool Claim() { return !claimed_.exchange(true, std::memory_order_acq_rel); }
  // By who has claimed it.
  void Finish(StatusOr<std::shared_ptr<Plan>> plan) {
    {
      MutexLock lock(&mu_);
      DeadlineTimer::Global().Cancel(timer_);
      // Not the waiting form: this may be running inside of that cancellation.
      if (caller_ != nullptr) (void)caller_->TryDeregisterCallback(token_);
    }
    const Ready ready = std::move(ready_);
    ready(std::move(plan));
  }
  // Once, while the caller waits; `give_up` may run before it returns, or later.
  void Watch(const Patience& patience, const std::function<void(Status)>& give_up) {
    bool cancelled = false;
    {
      MutexLock lock(&mu_);
      if (patience.deadline != kNoDeadline) {
        timer_ = DeadlineTimer::Global().Schedule(patience.deadline, [give_up] {
          give_up(errors::DeadlineExceeded("the step did not end by its deadline"));
        });
      }
      if (patience.caller != nullptr) {
        token_ = patience.caller->NextToken();
        cancelled = !patience.caller->RegisterCallback(token_, [give_up] {
          give_up(errors::Cancelled("the run was cancelled by its caller"));
        });
        if (!cancelled) caller_ = patience.caller;
      }
    }
    if (cancelled) give_up(errors::Cancelled("the run was cancelled by its caller"));
  }

 private:
  Ready ready_;
  std::atomic<bool> claimed_{false};
  Mutex mu_;
  CancellationManager* caller_ ABSL_GUARDED_BY(mu_) = nullptr;
  CancellationManager::Token token_ ABSL_GUARDED_BY(mu_) = -1;
  DeadlineTimer::Token timer_ ABSL_GUARDED_BY(mu_) = DeadlineTimer::kNone;
};

std::string PlanCache::Attempt::WaitsFor() {
  std::string tasks;
  MutexLock lock(&mu);
  for (const std::string& task : asked) StrAppend(&tasks, tasks.empty() ? "" : ", ", task);
  return tasks.empty() ? "; its plan was being made"
                       : StrCat("; it was waiting for an answer to RegisterGraph from ", tasks);
}

void PlanCache::Get(RunSignature signature, const Patience& patience, const Builder& build,
                    Ready ready) {
  std::string key = KeyOf(signature);
  std::shared_ptr<Plan> plan;
  std::shared_ptr<Building> building;
  RefPtr<Waiter> waiter;
  bool is_new = false;
  std::string notice;
  {
    MutexLock lock(&mu_);
    Entry& entry = plans_[key];
    plan = entry.plan;
    if (plan == nullptr) {
      is_new = entry.building == nullptr;
      if (is_new) {
        entry.building = std::make_shared<Building>();
        entry.building->key = std::move(key);
        notice = NoticeOf(signature);
      }
      building = entry.building;
      waiter = MakeRef<Waiter>(std::move(ready));
      building->waiters.push_back(waiter);
    }
  }
  if (plan != nullptr) return ready(std::move(plan));
  waiter->Watch(patience, [this, building, waiter](Status why) {
    GiveUp(building, waiter.get(), std::move(why));
  });
  if (!is_new) return;
  if (!notice.empty()) {
    const LogRequest named(patience.request_id);
    MR_LOG(kWarning, notice, RequestText(patience.request_id));
  }
  build(std::move(signature), building, [this, building](StatusOr<std::shared_ptr<Plan>> built) {
    Built(building, std::move(built));
  });
}

std::string PlanCache::NoticeOf(const RunSignature& signature) {
  const RunSignature before = std::exchange(last_, signature);
  if (unknown_ < next_notice_ || unknown_ <= 2 * known_) return "";
  next_notice_ = 4 * unknown_;
  return StrCat("session ", session_, ": ", unknown_, " of ", unknown_ + known_,
                " runs asked for what none had asked for before, and such a run is planned and "
                "registered anew, which takes far longer than a step; this one ",
                Difference(signature, before),
                ". Does the program add nodes in its loop? Build the graph once, and feed what "
                "changes");
}

void PlanCache::GiveUp(const std::shared_ptr<Building>& building, Waiter* waiter, Status why) {
  if (!waiter->Claim()) return;
  bool is_last = false;
  {
    MutexLock lock(&mu_);
    std::erase_if(building->waiters,
                  [waiter](const RefPtr<Waiter>& other) { return other.get() == waiter; });
    is_last = building->waiters.empty();
    // Whoever comes next begins anew.
    const auto it = plans_.find(building->key);
    if (is_last && it != plans_.end() && it->second.building == building) plans_.erase(it);
  }
  if (errors::IsDeadlineExceeded(why))
    why = WithMessage(why, StrCat(Message(why), building->WaitsFor()));
  if (is_last) building->cancellation.StartCancel(why);
  waiter->Finish(std::move(why));
}

void PlanCache::Built(const std::shared_ptr<Building>& building,
                      StatusOr<std::shared_ptr<Plan>> plan) {
  std::vector<RefPtr<Waiter>> waiters;
  {
    MutexLock lock(&mu_);
    waiters.swap(building->waiters);
    const auto it = plans_.find(building->key);
    const bool is_current = it != plans_.end() && it->second.building == building;
    if (plan.ok() && (is_current || it == plans_.end())) {
      plans_[building->key] = {*plan, nullptr};
    } else if (is_current) {
      plans_.erase(it);
    }
  }
  for (const RefPtr<Waiter>& waiter : waiters) {
    if (waiter->Claim()) waiter->Finish(plan);
  }
}

std::vector<std::shared_ptr<Plan>> PlanCache::All() const {
  std::vector<std::shared_ptr<Plan>> plans;
  MutexLock lock(&mu_);
  for (const auto& [key, entry] : plans_) {
    if (entry.plan != nullptr) plans.push_back(entry.plan);
  }
  return plans;
}

}  // namespace millrace
