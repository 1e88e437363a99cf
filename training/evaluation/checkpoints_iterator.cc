// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/log.h"
#include "base/strings.h"
#include "millrace/evaluator.h"
#include "millrace/saver.h"
#include "training/preemption_wait.h"

namespace millrace {

StatusOr<TakeCheckpoints> ParseTakeCheckpoints(std::string_view word) {
  if (word == "latest") return TakeCheckpoints::kLatest;
  if (word == "every") return TakeCheckpoints::kEvery;
  return errors::InvalidArgument("checkpoints are taken 'latest' or 'every', not '", word, "'");
}

std::optional<int64_t> CheckpointNumber(std::string_view prefix) {
  const std::size_t dash = prefix.rfind('-');
  int64_t number = 0;
  if (dash == std::string_view::npos || !ParseInt64(prefix.substr(dash + 1), &number) ||
      number < 0) {
    return std::nullopt;
  }
  return number;
}

CheckpointsIterator::CheckpointsIterator(std::string directory, CheckpointsIteratorOptions options)
    : directory_(std::move(directory)), options_(std::move(options)) {}

// One that is there and was not taken; "" if there is none.
std::string CheckpointsIterator::Take() {
  const std::string newest = LatestCheckpoint(directory_);
  if (newest.empty() || taken_.contains(newest)) return "";
  std::vector<std::string> waiting;  // oldest first
  const auto state = GetCheckpointState(directory_);
  if (state.ok() && state->has_value()) {
    for (const std::string& prefix : (*state)->all_model_checkpoint_paths) {
      if (prefix == newest) break;
      if (!taken_.contains(prefix) && CheckpointIsComplete(prefix)) waiting.push_back(prefix);
    }
  }
  waiting.push_back(newest);
  if (options_.take == TakeCheckpoints::kEvery) {
    taken_.insert(waiting.front());
    return waiting.front();
  }
  // Those from before the first that is taken are no loss.
  if (!taken_.empty()) {
    for (std::size_t i = 0; i + 1 < waiting.size(); ++i) {
      MR_LOG(kInfo, "skipped ", waiting[i], ": ", newest, " is newer");
      ++skipped_;
    }
  }
  taken_.insert(waiting.begin(), waiting.end());
  return newest;
}

std::string CheckpointsIterator::Next() {
  const auto pause = std::chrono::ceil<std::chrono::milliseconds>(not_before_ - Clock::now());
  if (!SleepUnlessPreempted(pause).ok()) return "";
  auto since = Clock::now();
  while (true) {
    // Asked first: what was there by then is taken.
    const bool stop = options_.stop && options_.stop();
    std::string taken = Take();
    if (!taken.empty()) {
      not_before_ = Clock::now() + options_.min_interval;
      return taken;
    }
    if (stop) return "";
    if (options_.timeout && Clock::now() - since >= *options_.timeout) {
      if (!options_.timeout_fn || options_.timeout_fn()) return "";
      since = Clock::now();
    }
    if (!SleepUnlessPreempted(options_.poll).ok()) return "";
  }
}

std::string WaitForNewCheckpoint(const std::string& directory, const std::string& last,
                                 std::optional<std::chrono::milliseconds> timeout,
                                 std::chrono::milliseconds poll) {
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    std::string newest = LatestCheckpoint(directory);
    if (!newest.empty() && newest != last) return newest;
    if (timeout && std::chrono::steady_clock::now() - begin >= *timeout) return "";
    if (!SleepUnlessPreempted(poll).ok()) return "";
  }
}

}  // namespace millrace
