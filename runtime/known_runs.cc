// SPDX-License-Identifier: Apache-2.0
#include "runtime/known_runs.h"

#include <string>
#include <utility>

#include "absl/hash/hash.h"
#include "graph/dataflow_graph.h"

namespace millrace {
namespace {

// Requests beyond this many are looked up by name.
constexpr int kMaxEntries = 1024;

uint64_t WordOf(const Output& output) {
  return static_cast<uint64_t>(output.op().node()->id()) << 32 |
         static_cast<uint32_t>(output.index());
}

// Calls `fn(word)` for the words that tell requests apart, in order.
template <typename Fn>
void ForEachWord(std::span<const Feed> feeds, std::span<const Output> fetches,
                 std::span<const Operation> targets, const Fn& fn) {
  fn(uint64_t{feeds.size()} << 32 | uint64_t{fetches.size()});
  for (const Feed& feed : feeds) fn(WordOf(feed.first));
  for (const Output& fetch : fetches) fn(WordOf(fetch));
  for (const Operation& target : targets) fn(static_cast<uint64_t>(target.node()->id()));
}

// Weyl's sequence and a multiplication per word: the tables are small, and requests compared.
uint64_t HashOf(std::span<const Feed> feeds, std::span<const Output> fetches,
                std::span<const Operation> targets) {
  uint64_t hash = 0;
  ForEachWord(feeds, fetches, targets, [&](uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7815ull;
    hash ^= hash >> 29;
  });
  return hash;
}

}  // namespace

const KnownRuns::Known* KnownRuns::Find(std::span<const Feed> feeds,
                                        std::span<const Output> fetches,
                                        std::span<const Operation> targets) const {
  const uint64_t hash = HashOf(feeds, fetches, targets);
  MutexLock lock(&mu_);
  const auto it = entries_.find(hash);
  if (it == entries_.end()) return nullptr;
  for (const auto& entry : it->second) {
    if (entry->request.size() != 1 + feeds.size() + fetches.size() + targets.size()) continue;
    const uint64_t* expected = entry->request.data();
    bool same = true;
    ForEachWord(feeds, fetches, targets,
                [&](uint64_t word) { same = same && word == *expected++; });
    if (same) return &entry->known;
  }
  return nullptr;
}

void KnownRuns::Remember(ClientSession* session, std::span<const Feed> feeds,
                         std::span<const Output> fetches, std::span<const Operation> targets) {
  if (!session->PreparesRuns()) return;
  {
    MutexLock lock(&mu_);
    if (num_entries_ == kMaxEntries) return;
    ++num_entries_;
  }
  auto entry = std::make_unique<Entry>();
  pb::CallableOptions request;
  for (const Feed& feed : feeds) {
    request.add_feed(entry->known.feeds.emplace_back(feed.first).name);
  }
  for (const Output& fetch : fetches) request.add_fetch(fetch.name());
  for (const Operation& target : targets) request.add_target(target.name());
  // An error is none of the request's, which has just been run.
  if (const StatusOr<int64_t> callable = session->MakeCallable(std::move(request)); callable.ok()) {
    entry->known.run = session->Prepare(*callable);
    if (entry->known.run == nullptr) session->ReleaseCallable(*callable).IgnoreError();
  }
  ForEachWord(feeds, fetches, targets, [&](uint64_t word) { entry->request.push_back(word); });
  const uint64_t hash = HashOf(feeds, fetches, targets);
  MutexLock lock(&mu_);
  entries_[hash].push_back(std::move(entry));
}

}  // namespace millrace
