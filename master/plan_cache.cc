#include "master/plan_cache.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "base/errors.h"

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
    if (same) return binding;
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

void PlanCache::Get(RunSignature signature, const Builder& build, Ready ready) {
  std::string key = KeyOf(signature);
  std::shared_ptr<Plan> plan;
  {
    MutexLock lock(&mu_);
    const auto [it, is_new] = plans_.try_emplace(key);
    plan = it->second.plan;
    if (plan == nullptr) {
      it->second.waiters.push_back(std::move(ready));
      if (!is_new) return;
    }
  }
  if (plan != nullptr) return ready(std::move(plan));
  build(std::move(signature), [this, key = std::move(key)](StatusOr<std::shared_ptr<Plan>> built) {
    Built(key, std::move(built));
  });
}

void PlanCache::Built(const std::string& key, StatusOr<std::shared_ptr<Plan>> plan) {
  std::vector<Ready> waiters;
  {
    MutexLock lock(&mu_);
    const auto it = plans_.find(key);
    waiters.swap(it->second.waiters);
    if (plan.ok()) {
      it->second.plan = *plan;
    } else {
      plans_.erase(it);
    }
  }
  for (const Ready& ready : waiters) ready(plan);
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
